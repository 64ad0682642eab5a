from dataclasses import replace

import pytest

from tests.unit.schedules.samples import NOON, TARGET, UPSERT, report
from tickkeeper.api.conditions import Reason, Status
from tickkeeper.api.status import TickScheduleStatus
from tickkeeper.schedules.announce import announcements
from tickkeeper.schedules.plan import Plan, State, Step
from tickkeeper.schedules.report import next_status
from tickkeeper.schedules.ticking import TICKING, Verdict

EMPTY = TickScheduleStatus()
NO_WORKERS = Verdict(Status.FALSE, Reason.NO_WORKERS, "no worker is connected")
AWAY = Verdict(Status.FALSE, Reason.REDIS_UNREACHABLE, "no connection to Redis")
SUSPENDED = Verdict(Status.FALSE, Reason.SUSPENDED)
DRIFT = Plan(State.DIFFERS, (Step.UPSERT,), message="every: 1234 -> 60000")
UNSAFE = Verdict(Status.FALSE, Reason.EVICTION_POLICY, "maxmemory-policy is allkeys-lru")


def after(*reports):
    """The status after these reports."""
    status = EMPTY
    for each in reports:
        status = next_status(status, each, NOON)
    return status


def told(previous, found, healed=None):
    return [(each.reason, each.warning) for each in announcements(previous, found, healed)]


def test_a_first_registration_is_told_with_its_place():
    [event] = announcements(EMPTY, report(), None)
    assert (event.reason, event.warning) == ("Registered", False)
    assert str(TARGET.place) in event.message
    assert TARGET.redis in event.message


@pytest.mark.parametrize(
    "found",
    [
        report(),
        report(ticking=TICKING),
        report(ticking=NO_WORKERS),
        report(registered=AWAY),
        report(suspended=True, registered=SUSPENDED),
        report(redis_safe=UNSAFE),
    ],
)
def test_a_state_that_goes_on_is_told_once(found):
    assert told(after(found), found) == []
    assert told(after(found), replace(found, generation=4)) == []


def test_a_heal_is_told_with_its_cause():
    [event] = announcements(after(report()), report(), UPSERT)
    assert event.reason == "Healed"
    assert "Missing" in event.message
    assert "the scheduler was gone" in event.message


def test_a_drift_is_told_with_old_and_new():
    [event] = announcements(after(report()), report(), DRIFT)
    assert event.reason == "DriftCorrected"
    assert "every: 1234 -> 60000" in event.message


def test_a_redis_that_went_and_came_is_told_both_times():
    assert told(after(report()), report(registered=AWAY)) == [("RedisUnreachable", True)]
    assert told(after(report(), report(registered=AWAY)), report()) == [("RedisRecovered", False)]


def test_a_redis_that_came_back_empty_is_told_as_both():
    assert told(after(report(registered=AWAY)), report(), UPSERT) == [("Healed", False), ("RedisRecovered", False)]


def test_every_refusal_is_a_warning_but_that_which_the_user_asked_for():
    for reason in (Reason.CONFLICT, Reason.FOREIGN_OWNER, Reason.INVALID_SPEC, Reason.FIGHTING, Reason.WRONG_TYPE):
        assert told(after(report()), report(registered=Verdict(Status.FALSE, reason, "why"))) == [(reason, True)]
    paused = Verdict(Status.FALSE, Reason.OPERATOR_PAUSED, "paused")
    assert told(after(report()), report(registered=paused)) == [("OperatorPaused", False)]


def test_registering_is_no_news():
    assert told(after(report()), report(registered=Verdict(Status.FALSE, Reason.REGISTERING, "not yet"))) == []


def test_suspending_is_told_where_something_was_removed():
    assert told(after(report()), report(suspended=True, registered=SUSPENDED)) == [("Removed", False)]
    assert told(EMPTY, report(suspended=True, registered=SUSPENDED)) == []
    assert told(after(report(suspended=True, registered=SUSPENDED)), report()) == [("Registered", False)]


def test_ticks_that_nobody_takes_are_told_and_their_return():
    assert told(after(report()), report(ticking=NO_WORKERS)) == [("NoWorkers", True)]
    assert told(after(report(ticking=NO_WORKERS)), report(ticking=TICKING)) == [("Ticking", False)]
    assert told(after(report()), report(ticking=TICKING)) == [], "the first tick is what everybody expects"


def test_another_reason_of_not_ticking_is_another_event():
    busy = Verdict(Status.FALSE, Reason.BUSY, "busy")
    assert told(after(report(ticking=NO_WORKERS)), report(ticking=busy)) == [("Busy", True)]


def test_an_outage_of_redis_is_no_news_of_ticking():
    away = report(registered=AWAY, ticking=Verdict(Status.UNKNOWN, Reason.REDIS_UNREACHABLE))
    assert told(after(report(ticking=TICKING)), away) == [("RedisUnreachable", True)]
    assert told(after(report(ticking=TICKING), away), report(ticking=TICKING)) == [("RedisRecovered", False)]


def test_an_unsafe_redis_is_told_once_and_its_mending_is_not():
    assert told(after(report()), report(redis_safe=UNSAFE)) == [("EvictionPolicy", True)]
    assert told(after(report(redis_safe=UNSAFE)), report()) == []
    assert told(after(report(redis_safe=UNSAFE)), report(redis_safe=None)) == []
    assert told(EMPTY, report(redis_safe=UNSAFE)) == [("Registered", False), ("EvictionPolicy", True)]
