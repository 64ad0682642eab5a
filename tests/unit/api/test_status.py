from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from tickkeeper.api.conditions import ConditionType, Reason, Status
from tickkeeper.api.status import Condition, LastHeal, Registered, TickScheduleStatus

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
WIRE = {
    "observedGeneration": 3,
    "registered": {
        "redis": "redis.shop:6379/0",
        "prefix": "bull",
        "queueName": "ticks",
        "schedulerId": "drain.acme",
        "time": "2026-02-03T12:00:00Z",
    },
    "heals": 2,
    "lastHeal": {"time": "2026-02-03T12:00:00Z", "reason": "Missing"},
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-02-03T12:00:00Z",
            "reason": "Ready",
            "message": "",
        }
    ],
}


def condition(**changes):
    fields = {"type": "Ready", "status": Status.TRUE, "last_transition_time": NOON, "reason": "Ready", "message": ""}
    return Condition(**fields | changes)


STATUS = TickScheduleStatus(
    observed_generation=3,
    registered=Registered(
        redis="redis.shop:6379/0", prefix="bull", queue_name="ticks", scheduler_id="drain.acme", time=NOON
    ),
    heals=2,
    last_heal=LastHeal(time=NOON, reason="Missing"),
    conditions=(condition(observed_generation=3),),
)


def test_what_is_written_is_read_back():
    assert STATUS.to_wire() == WIRE
    assert TickScheduleStatus.parse(WIRE) == STATUS


def test_nothing_found_is_written_as_nothing_but_the_count():
    assert TickScheduleStatus().to_wire() == {"heals": 0, "conditions": []}
    assert TickScheduleStatus.parse(None) == TickScheduleStatus()


def test_times_are_utc_in_whole_seconds():
    there = timezone(timedelta(hours=2))
    heal = LastHeal(time=datetime(2026, 2, 3, 14, 0, 0, 999_999, tzinfo=there), reason="Missing")
    assert heal.time == NOON
    assert TickScheduleStatus(last_heal=heal).to_wire()["lastHeal"]["time"] == "2026-02-03T12:00:00Z"


def test_a_time_without_a_zone_is_utc():
    assert LastHeal(time=datetime(2026, 2, 3, 12), reason="Missing").time == NOON  # noqa: DTZ001 - the case itself


@pytest.mark.parametrize(
    "odd", [5, "x", [], {"conditions": 5}, {"heals": -1, "registered": {"redis": 5}, "lastHeal": "x"}]
)
def test_a_status_of_another_form_counts_as_absent(odd):
    assert TickScheduleStatus.parse(odd) == TickScheduleStatus()


def test_what_can_be_read_of_an_odd_status_is_read():
    odd = WIRE | {
        "heals": "many",
        "fromANewerVersion": 1,
        "conditions": [{"type": "Ready"}, WIRE["conditions"][0], 5, {**WIRE["conditions"][0], "status": "Maybe"}],
    }
    read = TickScheduleStatus.parse(odd)
    assert read.heals == 0
    assert read.registered == STATUS.registered
    assert read.conditions == STATUS.conditions


def test_conditions_of_a_newer_version_are_read():
    odd = {**WIRE["conditions"][0], "type": "Glowing", "reason": "Warm"}
    read = TickScheduleStatus.parse({"conditions": [odd]})
    assert [found.type for found in read.conditions] == ["Glowing"]


def test_a_condition_is_found_by_its_type():
    assert STATUS.condition(ConditionType.READY) == STATUS.conditions[0]
    assert STATUS.condition(ConditionType.TICKING) is None


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_fits_metav1(reason):
    assert condition(reason=reason).reason == reason


@pytest.mark.parametrize(
    "changes", [{"reason": ""}, {"reason": "not one word"}, {"type": ""}, {"message": "x" * 32769}]
)
def test_our_own_conditions_must_fit_metav1(changes):
    with pytest.raises(ValidationError):
        condition(**changes)
