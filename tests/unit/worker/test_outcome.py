"""What handlers may say, and what follows."""

import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickkeeper.worker.outcome import (
    DONE,
    MAX_DELAY,
    MAX_ERROR,
    Dead,
    Fate,
    Retry,
    Snooze,
    clean,
    judge_raise,
    judge_return,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_nothing_returned_is_done():
    assert judge_return(None) == DONE


@pytest.mark.parametrize("value", [False, True, 0, "ok", {}, [], object()])
def test_nonsense_is_a_failure_that_says_what_came_back(value):
    verdict = judge_return(value)
    assert verdict.fate is Fate.RETRIED
    assert f"returned {type(value).__name__}" in verdict.error


@pytest.mark.parametrize("judge", [judge_return, judge_raise])
def test_outcomes_may_be_returned_or_raised(judge):
    assert judge(Dead("no such address")).fate is Fate.DEAD
    assert judge(Dead("no such address")).error == "no such address"
    assert judge(Retry(90, "busy")).after == timedelta(seconds=90)
    assert judge(Retry()).after is None
    assert judge(Snooze(NOW)).until == NOW


def test_any_other_exception_is_retried_with_its_text():
    verdict = judge_raise(ValueError("bad"))
    assert (verdict.fate, verdict.error, verdict.after) == (Fate.RETRIED, "ValueError: bad", None)


@pytest.mark.parametrize("after", [-1, math.nan, math.inf, timedelta(seconds=-1)])
def test_retry_refuses_delays_that_are_none(after):
    with pytest.raises(ValueError, match="after must be 0 or more seconds"):
        Retry(after)


@pytest.mark.parametrize("after", ["5", True, object()])
def test_retry_refuses_what_is_no_number(after):
    with pytest.raises(TypeError, match="after must be seconds or a timedelta"):
        Retry(after)


def test_retry_is_bounded():
    assert Retry(1e15).after == MAX_DELAY
    assert Retry(timedelta.max).after == MAX_DELAY
    assert Retry(0).after == timedelta(0)


@pytest.mark.parametrize("until", [datetime(2026, 1, 1), "2026-01-01", None, 5, timedelta(5)])  # noqa: DTZ001
def test_snooze_needs_a_zone(until):
    with pytest.raises(ValueError, match=r"must be a datetime with a time zone, not .*: datetime\.now\(UTC\) \+ timed"):
        Snooze(until)


class _Hasty(Retry):
    def __init__(self, code):
        self.code = code  # no super().__init__: nothing that a Retry says is there


class _Late(Snooze):
    def __init__(self):
        self.until = "tomorrow"


def test_a_subclass_that_sets_nothing_is_what_it_descends_from():
    verdict = judge_raise(_Hasty(5))
    assert (verdict.fate, verdict.error, verdict.after) == (Fate.RETRIED, "the handler asked for a retry", None)


@pytest.mark.parametrize("judge", [judge_raise, judge_return])
def test_a_reason_of_another_type_is_shown_as_text(judge):
    verdict = judge(Dead(404))
    assert (verdict.fate, verdict.error) == (Fate.DEAD, "404")


def test_an_outcome_that_holds_nonsense_is_a_failure_that_says_so():
    assert "must be a datetime with a time zone, not 'tomorrow'" in judge_raise(_Late()).error
    odd = Retry()
    odd.after = "soon"
    verdict = judge_raise(odd)
    assert verdict.fate is Fate.RETRIED
    assert "after must be seconds or a timedelta" in verdict.error


class _NoTime(datetime):
    """As pandas' NaT: a datetime by its type, and none by what it holds."""

    year = month = day = math.nan

    def astimezone(self, tz=None):
        return self


class _Moody(tzinfo):
    """Knows its offset once."""

    def __init__(self):
        self.asked = 0

    def utcoffset(self, moment):
        self.asked += 1
        if self.asked > 2:
            raise RuntimeError("no more")
        return timedelta(hours=2)

    def dst(self, moment):
        return timedelta(0)

    def tzname(self, moment):
        return "moody"


def test_a_time_is_plain_and_utc_before_it_comes_to_a_write():
    until = judge_return(Snooze(NOW.astimezone(timezone(timedelta(hours=5))))).until
    assert (type(until), until.tzinfo, until) == (datetime, UTC, NOW)
    assert judge_return(Snooze(datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))))).until.year == 9999
    assert judge_return(Snooze(datetime.min.replace(tzinfo=timezone(timedelta(hours=5))))).until.year == 1
    moody = judge_return(Snooze(datetime(2026, 1, 1, 2, tzinfo=_Moody())))
    assert moody.until == datetime(2026, 1, 1, tzinfo=UTC)
    late = _Late()
    late.until = _NoTime(2026, 1, 1, tzinfo=UTC)
    assert judge_raise(late).fate is Fate.RETRIED


def test_error_text_holds_no_credential_no_parameter_no_nul():
    text = clean(
        "OperationalError: postgresql://app:hunter2@db/x failed\x00 [SQL: INSERT] [parameters: ('4111-1111',)] \ud800"
    )
    assert "hunter2" not in text
    assert "4111" not in text
    assert "\x00" not in text
    text.encode()


@given(st.text(alphabet=st.characters(), max_size=MAX_ERROR + 10) | st.text(alphabet="\ud800\x00a", max_size=50))
def test_error_text_is_always_storable(text):
    cleaned = clean(text)
    assert len(cleaned) <= MAX_ERROR
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")


class _Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")


def test_an_exception_without_a_text_is_still_a_failure():
    assert judge_raise(_Unprintable()).error == "_Unprintable"
