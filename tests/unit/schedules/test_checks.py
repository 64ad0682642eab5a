"""The plan is total, and says the same of the same. What each plan does to a real Redis is tested there."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.schedules.samples import DATA, DESIRED, EVERY, NOW, OPTS, OWNER, observed, record
from tickkeeper.api.conditions import Reason
from tickkeeper.schedules.checks import Standing, overdue_after_ms, plan, plan_removal
from tickkeeper.schedules.desired import Cron, Every
from tickkeeper.schedules.observed import JobAt, Observed, QueueFacts, Record
from tickkeeper.schedules.plan import State, Step

TEXT = st.none() | st.sampled_from(["", "1", "60000", "12345", "x", "nan", "1e21", "* * * * *", "UTC", "drain"])
OWNERS = st.none() | st.sampled_from(
    [
        OWNER,
        replace(OWNER, uid="uid-0"),
        replace(OWNER, generation=9),
        replace(OWNER, generation=1),
        replace(OWNER, cluster="other"),
    ]
)
RECORDS = st.builds(
    Record,
    name=TEXT,
    every=TEXT,
    offset=TEXT,
    pattern=TEXT,
    tz=TEXT,
    bounds=st.dictionaries(st.sampled_from(["limit", "endDate"]), st.text(max_size=3), max_size=2),
    data=st.sampled_from([None, DATA, {}, [], 5, "x"]),
    opts=st.sampled_from([None, OPTS, {}]),
    iterations=st.integers(0, 5),
    owner=OWNERS,
)
SCORES = (
    st.none() | st.integers(-(2**53), 2**53) | st.just(EVERY.next_slot(NOW)) | st.integers(NOW - 10**6, NOW + 10**6)
)
OBSERVED = st.builds(
    Observed,
    now=st.just(NOW),
    score=SCORES,
    record=st.none() | RECORDS | st.just(record()),
    job=st.sampled_from(JobAt),
    job_intact=st.booleans(),
    leftover_job=st.none() | st.just("repeat:drain.acme:1"),
    wrong_type=st.none() | st.none() | st.just("bull:ticks:wait"),
    queue=st.builds(QueueFacts, st.booleans(), st.booleans(), st.booleans(), st.none() | st.integers(0, 2)),
)
STANDINGS = st.builds(Standing, st.booleans(), st.booleans(), st.booleans(), st.booleans())
SCHEDULES = st.sampled_from([EVERY, Every(10, 3), Every(31_536_000_000, 1), Cron("30 2 * * *", "Europe/Stockholm")])


@given(OBSERVED, STANDINGS, SCHEDULES, st.booleans(), st.booleans())
def test_there_is_a_plan_for_whatever_is_found(found, standing, schedule, unstamped, foreign):
    wanted = replace(DESIRED, schedule=schedule, adopts_unstamped=unstamped, adopts_foreign=foreign)
    made = plan(wanted, found, standing)
    assert made == plan(wanted, found, standing)
    assert made.steps.count(Step.REMOVE_JOB) == len(made.jobs)
    assert made.steps.count(Step.UPSERT) <= 1
    if made.acts:
        assert made.steps[-1] is Step.UPSERT, "whatever is removed is registered again"
    if made.state in (State.FOREIGN_OWNER, State.WRONG_TYPE, State.OVERDUE, State.HELD_BACK):
        assert not made.acts
        assert made.reason is not None
        assert made.message
    removal = plan_removal(wanted, found)
    assert Step.UPSERT not in removal.steps or removal.steps[-1] is Step.REMOVE


@given(OBSERVED, STANDINGS, SCHEDULES, st.integers(1, 60_000))
def test_what_is_only_told_is_told_in_the_same_words_at_each_look(found, standing, schedule, later):
    # The message is part of the status: one that changes with each look is written to the API server with each.
    wanted = replace(DESIRED, schedule=schedule)
    assume(((found.score or 0) <= NOW) == ((found.score or 0) <= NOW + later))
    now, then = plan(wanted, found, standing), plan(wanted, replace(found, now=NOW + later), standing)
    if not now.acts and (now.state, now.reason) == (then.state, then.reason):
        assert now.message == then.message


@given(OBSERVED, SCHEDULES)
def test_what_is_somebody_elses_is_never_written(found, schedule):
    wanted = replace(DESIRED, schedule=schedule)
    owner = found.record.owner if found.record else None
    if found.record is not None and (owner is None or owner.cluster != OWNER.cluster):
        assert not plan(wanted, found).acts
        assert not plan_removal(wanted, found).acts


def test_healthy():
    assert plan(DESIRED, observed()).state is State.HEALTHY


@pytest.mark.parametrize(
    ("every", "after"),
    [(10, 30_000), (30_000, 30_000), (60_000, 60_000), (300_000, 300_000), (86_400_000, 300_000)],
)
def test_overdue_is_later_than_half_a_minute_and_at_most_five(every, after):
    wanted = replace(DESIRED, schedule=Every(every, 1))
    assert overdue_after_ms(wanted, NOW) == after


def test_exactly_at_the_bound_is_not_overdue_yet():
    due = EVERY.next_slot(NOW)
    late = observed(now=due + 60_000, score=due, job=JobAt.WAIT)
    assert plan(DESIRED, late).state is State.HEALTHY
    assert plan(DESIRED, replace(late, now=due + 60_001)).state is State.OVERDUE


@pytest.mark.parametrize("state", ["corrections_held", "heals_held", "resets_used_up"])
def test_what_is_held_back_is_told_as_a_fight(state):
    found = {
        "corrections_held": observed(record=record(every="1234")),
        "heals_held": observed(score=None, record=None),
        "resets_used_up": observed(score=EVERY.next_slot(NOW) + 10 * 60_000),
    }[state]
    assert plan(DESIRED, found).acts
    held = plan(DESIRED, found, Standing(**{state: True}))
    assert (held.state, held.acts, held.reason) == (State.HELD_BACK, False, Reason.FIGHTING)


@pytest.mark.parametrize("standing", [Standing(True, True, True)])
def test_an_edit_is_never_held_back(standing):
    older = observed(record=record(every="1234", owner=replace(OWNER, generation=2)))
    assert plan(DESIRED, older, standing).state is State.OUTDATED
    assert plan(DESIRED, older, standing).acts
