from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.schedules.samples import NOON, TARGET, report
from tickkeeper.api.conditions import ConditionType, Reason, Status
from tickkeeper.api.status import Condition, TickScheduleStatus
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.report import NOT_SUSPENDED, RESOLVED, SUSPENDED, next_status, summary
from tickkeeper.schedules.ticking import TICKING, Verdict

LATER = NOON + timedelta(hours=1)
EMPTY = TickScheduleStatus()
NO_WORKERS = Verdict(Status.FALSE, Reason.NO_WORKERS, "no worker is connected")
AWAY = Verdict(Status.FALSE, Reason.REDIS_UNREACHABLE, "no connection to Redis")
NOT_YET = Verdict(Status.FALSE, Reason.REGISTERING, "being removed")
LOST = Verdict(Status.FALSE, Reason.REFERENCE_NOT_FOUND, "there is no Secret")


# --- Ready ---


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (report(), Status.TRUE, Reason.READY),
        (report(ticking=TICKING), Status.TRUE, Reason.READY),
        (report(ticking=NO_WORKERS), Status.FALSE, Reason.NO_WORKERS),
        (report(registered=AWAY, ticking=TICKING), Status.FALSE, Reason.REDIS_UNREACHABLE),
        (report(registered=LOST, references=LOST), Status.FALSE, Reason.REFERENCE_NOT_FOUND),
        (
            report(suspended=True, registered=Verdict(Status.FALSE, Reason.SUSPENDED), ticking=NO_WORKERS),
            Status.TRUE,
            Reason.SUSPENDED,
        ),
        (report(suspended=True, registered=AWAY), Status.FALSE, Reason.REDIS_UNREACHABLE),
        (
            report(suspended=True, registered=Verdict(Status.FALSE, Reason.REGISTERING)),
            Status.FALSE,
            Reason.REGISTERING,
        ),
        (
            report(redis_safe=Verdict(Status.FALSE, Reason.EVICTION_POLICY)),
            Status.TRUE,
            Reason.READY,
        ),
    ],
)
def test_ready_is_the_gravest_of_the_others(found, status, reason):
    assert (summary(found).status, summary(found).reason) == (status, reason)


# --- the status ---


def test_a_first_report_says_everything():
    status = next_status(EMPTY, report(), NOON)
    assert status.observed_generation == 3
    assert status.registered.model_dump() == {
        "redis": TARGET.redis,
        "prefix": "bull",
        "queue_name": "ticks",
        "scheduler_id": "drain.acme",
        "time": NOON,
    }
    assert (status.heals, status.last_heal) == (0, None)
    assert {condition.type for condition in status.conditions} == set(ConditionType)
    assert {condition.observed_generation for condition in status.conditions} == {3}
    assert {condition.last_transition_time for condition in status.conditions} == {NOON}
    assert status.condition(ConditionType.SUSPENDED).reason == NOT_SUSPENDED.reason
    assert status.condition(ConditionType.REFERENCES_RESOLVED).reason == RESOLVED.reason


@pytest.mark.parametrize("found", [report(), report(registered=AWAY, target=None), report(suspended=True, target=None)])
def test_the_same_found_again_is_the_same_status(found):
    status = next_status(EMPTY, found, NOON)
    assert next_status(status, found, LATER) == status
    assert next_status(TickScheduleStatus.parse(status.to_wire()), found, LATER) == status, "and read from the wire"


def test_a_transition_time_is_that_of_the_status_not_of_the_reason():
    status = next_status(EMPTY, report(registered=AWAY), NOON)
    other = replace(AWAY, reason=Reason.WRONG_TYPE, message="another")
    status = next_status(status, report(registered=other), LATER)
    condition = status.condition(ConditionType.REGISTERED)
    assert (condition.reason, condition.message, condition.last_transition_time) == ("WrongType", "another", NOON)
    status = next_status(status, report(), LATER)
    assert status.condition(ConditionType.REGISTERED).last_transition_time == LATER
    assert status.condition(ConditionType.REFERENCES_RESOLVED).last_transition_time == NOON


def test_a_new_generation_is_a_new_status_without_transitions():
    status = next_status(next_status(EMPTY, report(), NOON), report(generation=4), LATER)
    assert status.observed_generation == 4
    assert {condition.observed_generation for condition in status.conditions} == {4}
    assert {condition.last_transition_time for condition in status.conditions} == {NOON}


def test_heals_are_added_up():
    status = next_status(EMPTY, report(heals=1, heal_reason="Missing"), NOON)
    assert (status.heals, status.last_heal.reason, status.last_heal.time) == (1, "Missing", NOON)
    status = next_status(status, report(heals=1, heal_reason="Differs"), LATER)
    assert (status.heals, status.last_heal.reason, status.last_heal.time) == (2, "Differs", LATER)
    assert next_status(status, report(), LATER).last_heal == status.last_heal


def test_registered_keeps_its_time_until_the_place_changes():
    status = next_status(EMPTY, report(), NOON)
    assert next_status(status, report(generation=4), LATER).registered == status.registered
    moved = report(target=Target("redis://other:6379/0", TARGET.place))
    assert next_status(status, moved, LATER).registered.time == LATER
    assert next_status(status, report(target=None), LATER).registered is None


def test_what_redis_could_not_be_asked_stays_as_it_was():
    safe = Verdict(Status.FALSE, Reason.EVICTION_POLICY, "allkeys-lru")
    status = next_status(EMPTY, report(redis_safe=safe), NOON)
    status = next_status(status, report(registered=AWAY, redis_safe=None), LATER)
    assert status.condition(ConditionType.REDIS_SAFE).reason == "EvictionPolicy"


def test_without_any_word_of_redis_there_is_no_verdict_on_it():
    status = next_status(EMPTY, report(registered=AWAY, redis_safe=None), NOON)
    assert status.condition(ConditionType.REDIS_SAFE) is None


def test_conditions_of_others_are_kept():
    theirs = Condition(type="Glowing", status=Status.TRUE, last_transition_time=NOON, reason="Warm", message="")
    status = next_status(TickScheduleStatus(conditions=(theirs,)), report(), LATER)
    assert theirs in status.conditions


def test_suspended_is_told():
    status = next_status(EMPTY, report(suspended=True), NOON)
    assert status.condition(ConditionType.SUSPENDED).message == SUSPENDED.message


@pytest.mark.parametrize("length", [1024, 1025, 100_000])
def test_a_message_is_cut_to_what_a_terminal_shows(length):
    status = next_status(EMPTY, report(registered=replace(AWAY, message="x" * length)), NOON)
    message = status.condition(ConditionType.REGISTERED).message
    assert len(message) == 1024
    assert message.endswith("…") is (length > 1024)


def test_times_are_whole_seconds():
    status = next_status(EMPTY, report(heals=1, heal_reason="Missing"), NOON.replace(microsecond=999_999))
    times = {status.registered.time, status.last_heal.time, *(each.last_transition_time for each in status.conditions)}
    assert times == {NOON}
