import pytest

from tickkeeper.schedules.checks import Standing
from tickkeeper.schedules.history import History
from tickkeeper.schedules.plan import Plan, State, Step


def did(state):
    return Plan(state, (Step.UPSERT,))


def corrections(history, times, state=State.DIFFERS):
    for time in times:
        history.note(did(state), time)


def test_nothing_done_holds_nothing():
    assert History().standing(0.0) == Standing()


def test_two_corrections_are_taken_as_they_come():
    history = History()
    corrections(history, (0.0, 1.0))
    assert not history.standing(1.0).corrections_held


@pytest.mark.parametrize(("count", "hold"), [(3, 15), (4, 30), (5, 60), (6, 120), (7, 240), (8, 300), (40, 300)])
def test_more_of_them_are_held_back_longer_and_longer(count, hold):
    history = History()
    corrections(history, [0.0] * count)
    assert history.standing(hold - 0.1).corrections_held
    assert not history.standing(hold + 0.1).corrections_held


def test_the_pause_counts_from_the_last_correction():
    history = History()
    corrections(history, (0.0, 1.0, 20.0))
    assert history.standing(34.0).corrections_held
    assert not history.standing(36.0).corrections_held


def test_what_lies_ten_minutes_back_is_forgotten():
    history = History()
    corrections(history, (0.0, 1.0, 2.0))
    assert history.standing(3.0).corrections_held
    history.note(did(State.DIFFERS), 700.0)
    assert not history.standing(700.0).corrections_held


def test_a_rolling_deploys_removals_are_healed_at_once_and_a_loop_is_slowed_down():
    history = History()
    corrections(history, [0.0] * 29, State.MISSING)
    assert not history.standing(0.0).heals_held
    corrections(history, [0.0], State.CHAIN_BROKEN)
    assert history.standing(0.5).heals_held
    assert not history.standing(1.1).heals_held
    corrections(history, [1.1] * 10, State.HASH_MISSING)
    assert history.standing(16.0).heals_held
    assert not history.standing(16.2).heals_held, "never longer than 15 s"


def test_corrections_and_heals_are_apart():
    history = History()
    corrections(history, [0.0] * 5)
    assert not history.standing(0.0).heals_held
    history = History()
    corrections(history, [0.0] * 40, State.MISSING)
    assert not history.standing(0.0).corrections_held


def test_edits_of_the_resource_count_for_nothing():
    history = History()
    corrections(history, [0.0] * 50, State.OUTDATED)
    assert history.standing(0.0) == Standing()


@pytest.mark.parametrize("state", [State.CLOCK_AHEAD, State.OFF_PHASE])
def test_two_resets_in_ten_minutes_are_enough(state):
    history = History()
    history.note(did(state), 0.0)
    assert not history.standing(0.0).resets_used_up
    history.note(did(state), 1.0)
    assert history.standing(1.0).resets_used_up
    assert not history.standing(601.0).resets_used_up


def test_our_own_clock_is_passed_on():
    assert History().standing(0.0, own_clock_off=True).own_clock_off
