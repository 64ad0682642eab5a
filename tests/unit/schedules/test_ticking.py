from dataclasses import replace

import pytest

from tests.unit.schedules.samples import HEALTHY, NOW, UPSERT, observed, record
from tickkeeper.api.conditions import Reason, Status
from tickkeeper.schedules.plan import Plan, State
from tickkeeper.schedules.ticking import AWAITING, TICKING, TickWatch

SLOT = observed().score
OVERDUE = Plan(State.OVERDUE, message="due since 12:00: no worker is connected to the queue", reason=Reason.NO_WORKERS)


def at(score, **changes):
    return observed(score=score, **changes)


def test_at_first_nothing_is_known():
    assert TickWatch().verdict == AWAITING
    assert not TickWatch().settled


def test_a_due_time_that_moves_on_is_a_tick():
    watch = TickWatch().judge(UPSERT, at(SLOT))
    assert watch.verdict == AWAITING
    watch = watch.judge(HEALTHY, at(SLOT))
    assert watch.verdict == AWAITING
    watch = watch.judge(HEALTHY, at(SLOT + 60_000))
    assert watch.verdict == TICKING
    assert watch.settled


def test_our_own_writes_are_no_ticks():
    watch = TickWatch().judge(UPSERT, at(SLOT)).judge(UPSERT, at(SLOT + 60_000))
    assert watch.verdict == AWAITING
    assert watch.judge(HEALTHY, at(SLOT + 60_000)).verdict == AWAITING


def test_a_schedule_that_has_iterated_before_we_came_ticks():
    assert TickWatch().judge(HEALTHY, at(SLOT, record=record(iterations=2))).verdict == TICKING
    assert TickWatch().judge(HEALTHY, at(SLOT, record=record(iterations=1))).verdict == AWAITING


def test_an_upsert_over_a_schedule_that_iterated_says_nothing():
    assert TickWatch().judge(UPSERT, at(SLOT, record=record(iterations=9))).verdict == AWAITING


def test_overdue_says_why_and_the_next_tick_ends_it():
    watch = TickWatch().judge(HEALTHY, at(SLOT)).judge(OVERDUE, at(SLOT))
    assert (watch.verdict.status, watch.verdict.reason) == (Status.FALSE, Reason.NO_WORKERS)
    assert watch.verdict.message == OVERDUE.message
    assert not watch.settled, "a closer look is wanted until it ticks"
    assert watch.judge(HEALTHY, at(SLOT)).verdict.reason is Reason.NO_WORKERS
    assert watch.judge(HEALTHY, at(SLOT + 60_000)).verdict == TICKING


def test_overdue_after_ticking_is_told():
    watch = TickWatch(TICKING, SLOT).judge(OVERDUE, at(SLOT))
    assert watch.verdict.status is Status.FALSE


def test_a_heal_does_not_end_what_is_overdue():
    watch = TickWatch().judge(OVERDUE, at(SLOT))
    watch = watch.judge(UPSERT, at(SLOT + 120_000))
    assert watch.verdict.status is Status.FALSE
    assert watch.judge(HEALTHY, at(SLOT + 180_000)).verdict == TICKING


@pytest.mark.parametrize("seen", [None, observed(score=None, record=None)])
def test_nothing_seen_changes_nothing(seen):
    watch = TickWatch(TICKING, SLOT)
    assert watch.judge(HEALTHY, seen) == watch


def test_overdue_without_a_sight_keeps_its_baseline():
    watch = TickWatch(TICKING, SLOT).judge(OVERDUE, None)
    assert watch.baseline == SLOT


def test_going_back_is_no_tick():
    watch = TickWatch(AWAITING, SLOT)
    assert watch.judge(HEALTHY, at(SLOT - 60_000)).verdict == AWAITING
    assert watch.judge(replace(HEALTHY, state=State.HELD_BACK), at(SLOT + 60_000)).verdict == AWAITING


def test_times_are_milliseconds():
    assert SLOT > NOW
