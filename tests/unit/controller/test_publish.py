from datetime import UTC, datetime

import pytest

from tests.unit.controller.fakes import FakeWriter
from tests.unit.schedules.samples import TARGET, UPSERT, report
from tickkeeper.api.conditions import Reason, Status
from tickkeeper.api.status import TickScheduleStatus
from tickkeeper.controller.memo import Memo
from tickkeeper.controller.publish import Publisher, to_patch
from tickkeeper.controller.told import Told
from tickkeeper.schedules.announce import Announcement
from tickkeeper.schedules.desired import ResourceKey
from tickkeeper.schedules.report import next_status
from tickkeeper.schedules.ticking import Verdict

KEY = ResourceKey("apps", "acme")
AWAY = Verdict(Status.FALSE, Reason.REDIS_UNREACHABLE, "no connection to Redis")


@pytest.fixture
def writer():
    return FakeWriter()


@pytest.fixture
def publisher(writer):
    return Publisher(writer)


@pytest.fixture
def memo():
    return Memo("uid-1", Told.of(TickScheduleStatus()))


def test_what_changed_is_written_and_told(publisher, writer, memo):
    assert publisher.publish(KEY, memo, report())
    publisher.flush()
    [(key, uid, patch)] = writer.statuses
    assert (key, uid) == (KEY, "uid-1")
    assert patch["registered"]["schedulerId"] == "drain.acme"
    assert patch == to_patch(memo.told.status)
    [event] = writer.events
    assert (event.key, event.uid, event.reason, event.warning) == (KEY, "uid-1", "Registered", False)


def test_what_did_not_change_is_not_written(publisher, writer, memo):
    publisher.publish(KEY, memo, report())
    publisher.flush()
    assert not publisher.publish(KEY, memo, report())
    publisher.flush()
    assert len(writer.statuses) == 1
    assert len(writer.events) == 1


def test_events_wait_for_the_end_of_the_pass(publisher, writer, memo):
    publisher.publish(KEY, memo, report())
    assert writer.events == []
    publisher.flush()
    publisher.flush()
    assert len(writer.events) == 1


def pass_over(publisher, count, found, healed=None, memos=None):
    memos = memos if memos is not None else [Memo(f"uid-{n}", Told.of(TickScheduleStatus())) for n in range(count)]
    for number, memo in enumerate(memos):
        publisher.publish(ResourceKey("apps", f"s{number}"), memo, found, healed)
    publisher.flush()
    return memos


def test_up_to_five_of_a_kind_are_told_one_by_one(publisher, writer):
    pass_over(publisher, 5, report())
    assert len(writer.events) == 5


def test_more_of_a_kind_are_told_as_one(publisher, writer):
    pass_over(publisher, 1000, report(registered=AWAY))
    [event] = writer.events
    assert event.reason == "RedisUnreachable"
    assert event.warning
    assert event.key == ResourceKey("apps", "s0")
    assert event.uid == "uid-0"
    assert event.message.endswith("(and 999 other TickSchedules)")
    assert len(writer.statuses) == 1000


def test_kinds_are_counted_apart(publisher, writer):
    memos = pass_over(publisher, 6, report(registered=AWAY))
    writer.events.clear()
    pass_over(publisher, 6, report(), UPSERT, memos)
    assert sorted(event.reason for event in writer.events) == ["Healed", "RedisRecovered"]


def test_a_long_message_that_stands_for_many_fits_an_event(publisher, writer):
    pass_over(publisher, 6, report(registered=Verdict(Status.FALSE, Reason.REDIS_UNREACHABLE, "x" * 5000)))
    assert len(writer.events[0].message) <= 1000
    assert "5 other" in writer.events[0].message


def test_heals_in_quick_succession_are_told_once_and_counted_all(publisher, writer, memo):
    publisher.publish(KEY, memo, report())
    for _ in range(20):
        publisher.publish(KEY, memo, report(heals=1, heal_reason="Missing"), UPSERT)
    publisher.flush()
    assert [event.reason for event in writer.events] == ["Registered", "Healed"]
    assert memo.told.status.heals == 20
    memo.heal_told_at -= 11
    publisher.publish(KEY, memo, report(heals=1, heal_reason="Missing"), UPSERT)
    publisher.flush()
    assert [event.reason for event in writer.events].count("Healed") == 2


def test_an_event_without_a_report(publisher, writer, memo):
    publisher.announce(KEY, memo, Announcement("Removed", "nothing of it is left in Redis"))
    publisher.flush()
    assert writer.events[0].reason == "Removed"
    assert writer.statuses == []


def test_a_patch_clears_what_is_absent():
    full = next_status(TickScheduleStatus(), report(heals=1, heal_reason="Missing"), datetime.now(UTC))
    bare = next_status(full, report(registered=AWAY, target=None), datetime.now(UTC))
    assert to_patch(full)["registered"]["redis"] == TARGET.redis
    assert to_patch(bare)["registered"] is None
    assert to_patch(bare)["lastHeal"]["reason"] == "Missing"
    assert to_patch(TickScheduleStatus()) == {
        "observedGeneration": None,
        "registered": None,
        "lastHeal": None,
        "heals": 0,
        "conditions": [],
    }


def test_a_deleted_resource_is_forgotten(publisher, writer):
    publisher.forget(KEY)
    assert writer.forgotten == [KEY]


@pytest.fixture
def told(publisher, writer, memo):
    """A status that was told, and is now another one for the API server."""
    publisher.publish(KEY, memo, report())
    writer.statuses.clear()
    return TickScheduleStatus(heals=7)


def heals_written(writer):
    return [patch["heals"] for _, _, patch in writer.statuses]


def test_an_altered_status_is_put_back_at_once(publisher, writer, memo, told):
    publisher.put_back(KEY, memo, told)
    publisher.put_back_late()
    assert heals_written(writer) == [0]


def test_our_own_status_is_not_put_back(publisher, writer, memo, told):
    publisher.put_back(KEY, memo, memo.told.status)
    publisher.put_back_late()
    assert writer.statuses == []


def test_a_status_altered_again_too_soon_is_put_back_later(publisher, writer, memo, told):
    publisher.put_back(KEY, memo, told)
    publisher.put_back(KEY, memo, told)
    publisher.put_back_late()
    assert heals_written(writer) == [0], "whoever keeps changing it costs a write each ten seconds"
    memo.put_back_at -= 10
    publisher.put_back_late()
    publisher.put_back_late()
    assert heals_written(writer) == [0, 0]


def test_a_status_altered_while_ours_is_on_its_way_is_put_back_afterwards(publisher, writer, memo, told):
    writer.pending.add(KEY)
    publisher.put_back(KEY, memo, told)
    publisher.put_back_late()
    assert writer.statuses == []
    writer.pending.clear()
    publisher.put_back_late()
    assert heals_written(writer) == [0]


def test_an_older_status_of_ours_that_a_newer_one_follows_is_not_put_back(publisher, writer, memo, told):
    writer.pending.add(KEY)
    publisher.put_back(KEY, memo, told)
    publisher.put_back(KEY, memo, memo.told.status)
    writer.pending.clear()
    publisher.put_back_late()
    assert writer.statuses == []


def test_what_is_deleted_is_not_put_back(publisher, writer, memo, told):
    writer.pending.add(KEY)
    publisher.put_back(KEY, memo, told)
    publisher.forget(KEY)
    writer.pending.clear()
    publisher.put_back_late()
    assert writer.statuses == []
