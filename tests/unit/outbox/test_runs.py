"""How many rows the first row of a key stands for."""

from hypothesis import given
from hypothesis import strategies as st

from tickkeeper.outbox.runs import MAX_RUN, Habit, Habits, share_of


def test_keys_with_many_rows_take_fewer_keys_and_longer_runs() -> None:
    habit = Habit()
    before = habit.weigh(500)
    for _ in range(9):
        habit.learn(0, 50, [9] * 50, 9)
    assert habit.weigh(500) > 4 * before
    assert habit.ask(500) < 10


def test_keys_of_one_row_fill_a_claim() -> None:
    habit = Habit()
    for _ in range(9):
        habit.learn(0, 50, [0] * 50, 9)
    assert habit.ask(500) >= 400
    assert 500 / habit.weigh(500) >= 400


def test_a_single_key_does_not_fill_a_claim_by_its_weight() -> None:
    habit = Habit(weight=64.0)
    assert habit.weigh(16) == 2.0
    assert habit.weigh(1) == 1.25


def test_with_rows_without_a_key_all_are_looked_at() -> None:
    habit = Habit()
    habit.learn(0, 5, [0] * 5, 9)
    assert habit.ask(100) < 100
    habit.learn(1, 5, [0] * 5, 9)
    assert habit.ask(100) == 100
    habit.learn(100, 0, (), 0)
    assert habit.ask(100) == 100


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_what_may_come_behind_fits_the_limit(limit: int, taken: int, heads: int) -> None:
    room, share = share_of(limit, taken, heads)
    assert 0 <= room <= limit
    assert taken + room <= max(limit, taken)
    assert 0 <= share < MAX_RUN
    assert share * heads >= min(room, heads * (MAX_RUN - 1)) or not heads


def test_habits_of_many_tenants_are_bounded() -> None:
    habits = Habits()
    for number in range(3_000):
        habits.keep(str(number), Habit(weight=2.0))
    assert not habits.known("0")
    assert habits.of("0").weight != 2.0
    assert habits.of("2999").weight == 2.0
