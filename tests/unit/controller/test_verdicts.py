from dataclasses import replace

import pytest

from tests.unit.schedules.samples import DESIRED, HEALTHY, TARGET, UPSERT, observed
from tickkeeper.api.conditions import Reason, Status
from tickkeeper.controller.charge import Charge, Found, Intent, Unreachable
from tickkeeper.controller.verdicts import healed_by, is_cleared, report_of
from tickkeeper.schedules.plan import Plan, State, Step
from tickkeeper.schedules.ticking import TICKING, TickWatch, Verdict

SAFE = Verdict(Status.TRUE, Reason.NO_EVICTION)
AWAY = Unreachable("no connection to Redis")
OUTDATED = Plan(State.OUTDATED, (Step.UPSERT,), message="every: 1 -> 2")
FOREIGN = Plan(State.FOREIGN_OWNER, message="theirs", reason=Reason.FOREIGN_OWNER)
WRONG = Plan(State.WRONG_TYPE, message="the key x", reason=Reason.WRONG_TYPE)
OVERDUE = Plan(State.OVERDUE, message="due since 2026-11-30T12:00:00Z", reason=Reason.NO_WORKERS)
LEFTOVER = Plan(State.LEFTOVER, (Step.REMOVE,))
SILENT = replace(UPSERT, message="")
ABSENT = Plan(State.ABSENT)


def found(plan=HEALTHY, after=None, **more):
    return Found(plan, after or plan, observed(), SAFE, **more)


MENDED = found(UPSERT, HEALTHY)


def keep():
    return Charge(DESIRED)


def remove():
    return Charge(DESIRED, Intent.REMOVE)


def report(charge, outcome, *, was_registered=True, healed=None):
    return report_of(charge, outcome, TARGET, was_registered=was_registered, healed=healed)


# --- is it cleared? ---


@pytest.mark.parametrize(
    ("outcome", "cleared"),
    [
        (found(ABSENT), True),
        (found(LEFTOVER, ABSENT), True),
        (found(FOREIGN), True),
        (found(WRONG), True),
        (found(LEFTOVER), False),
        (found(LEFTOVER, ABSENT, error="refused"), False),
        (AWAY, False),
    ],
)
def test_cleared_means_that_nothing_of_ours_is_left(outcome, cleared):
    assert is_cleared(outcome) is cleared


# --- was it a heal? ---


def test_what_was_broken_and_is_mended_is_a_heal():
    assert healed_by(keep(), MENDED, registered_before=True) == UPSERT


@pytest.mark.parametrize(
    ("charge", "outcome", "before"),
    [
        (keep(), MENDED, False),  # its first registration
        (keep(), found(OUTDATED, HEALTHY), True),  # an edit
        (keep(), found(UPSERT, HEALTHY, error="refused"), True),
        (keep(), found(UPSERT, UPSERT), True),  # broken again at once
        (keep(), found(), True),
        (keep(), found(FOREIGN), True),
        (keep(), AWAY, True),
        (remove(), found(LEFTOVER, ABSENT), True),
    ],
)
def test_no_heal(charge, outcome, before):
    assert healed_by(charge, outcome, registered_before=before) is None


# --- what does the status say? ---


def test_in_place():
    charge = keep()
    charge.watch = TickWatch(TICKING)
    told = report(charge, found())
    assert told.generation == DESIRED.owner.generation
    assert (told.registered.status, told.registered.reason) == (Status.TRUE, Reason.REGISTERED)
    assert told.ticking == TICKING
    assert (told.target, told.redis_safe, told.heals, told.heal_reason) == (TARGET, SAFE, 0, None)


def test_a_heal_is_counted_by_its_state():
    told = report(keep(), MENDED, healed=UPSERT)
    assert (told.heals, told.heal_reason) == (1, State.MISSING)


def test_overdue_is_registered_all_the_same():
    assert report(keep(), found(OVERDUE)).registered.status is Status.TRUE


def test_a_redis_that_cannot_be_asked_says_nothing_of_what_is_in_it():
    told = report(keep(), AWAY)
    assert (told.registered.reason, told.registered.message) == (Reason.REDIS_UNREACHABLE, AWAY.message)
    assert (told.ticking.status, told.ticking.reason) == (Status.UNKNOWN, Reason.REDIS_UNREACHABLE)
    assert told.redis_safe is None
    assert told.target == TARGET, "what was registered is so still, for all we know"
    assert report(keep(), AWAY, was_registered=False).target is None
    assert report(remove(), AWAY).suspended


@pytest.mark.parametrize(
    ("outcome", "reason", "message"),
    [
        (found(FOREIGN), Reason.FOREIGN_OWNER, "theirs"),
        (found(WRONG), Reason.WRONG_TYPE, "the key x"),
        (found(UPSERT, UPSERT, error="BullMQ refused"), Reason.REGISTERING, "BullMQ refused"),
        (
            found(UPSERT, replace(UPSERT, message="")),
            Reason.REGISTERING,
            "another writer changed it at the same moment",
        ),
    ],
)
def test_what_is_not_in_place_says_why(outcome, reason, message):
    told = report(keep(), outcome)
    assert (told.registered.status, told.registered.reason) == (Status.FALSE, reason)
    assert told.registered.message == message
    assert told.ticking.status is Status.UNKNOWN


def test_suspended():
    told = report(remove(), found(LEFTOVER, ABSENT))
    assert (told.registered.reason, told.suspended, told.target) == (Reason.SUSPENDED, True, None)
    assert told.ticking.status is Status.FALSE


def test_suspended_and_not_removed_yet():
    told = report(remove(), found(LEFTOVER, error="BullMQ refused"))
    assert (told.registered.reason, told.registered.message) == (Reason.REGISTERING, "BullMQ refused")
    assert told.target == TARGET


# --- what counts as in place ---


@pytest.mark.parametrize(
    ("state", "in_place"),
    [
        (State.HEALTHY, True),
        (State.OVERDUE, True),
        (State.NEWER_GENERATION, False),
        (State.HELD_BACK, False),
        (State.FOREIGN_OWNER, False),
        (State.MISSING, False),
    ],
)
def test_in_place_is_what_ticks_as_it_must(state, in_place):
    assert found(Plan(state)).in_place is in_place
    assert not found(Plan(state), error="refused").in_place
