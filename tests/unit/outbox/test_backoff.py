"""The wait between two attempts."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickkeeper.outbox import Backoff

SECOND = timedelta(seconds=1)


def test_doubles_up_to_the_cap_and_takes_half_to_all_of_it() -> None:
    backoff = Backoff(base=SECOND, cap=timedelta(seconds=10))
    assert [backoff.seconds(attempts, 0.0) for attempts in range(1, 7)] == [0.5, 1, 2, 4, 5, 5]
    assert backoff.seconds(3, 0.5) == 3
    assert backoff.seconds(10_000, 0.999999) == pytest.approx(10, rel=1e-3)


def test_the_default_gives_a_row_up_after_some_hours() -> None:
    waits = [Backoff().seconds(attempts, 0.5) for attempts in range(1, 20)]
    assert 5 * 3_600 < sum(waits) < 7 * 3_600


@given(st.integers(1, 1_000), st.floats(0, 1, exclude_max=True))
def test_never_shorter_than_half_of_the_base_nor_longer_than_the_cap(attempts: int, chance: float) -> None:
    assert 0.5 <= Backoff().seconds(attempts, chance) <= 3_600


@pytest.mark.parametrize("field", ["base", "cap"])
@pytest.mark.parametrize("value", [timedelta(), -SECOND, timedelta(days=366)])
def test_bounds(field: str, value: timedelta) -> None:
    with pytest.raises(ValueError, match=f"back-off {field} is .*: must be longer than 0 and at most 365 days"):
        Backoff(**{field: value})
