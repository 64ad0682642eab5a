"""What a handler may say of a row, and what follows from it. Pure.

A handler returns nothing when the row is done. ``Retry``, ``Dead`` and ``Snooze`` may be returned or raised. Any other
exception is a failure, and so is any other return value: a handler that returns ``False`` meant something, and calling
that success would lose the row. Failures are retried with the store's back-off until the row's attempts are used up.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from tickkeeper.telemetry.redaction import describe, redact

#: Longest error text that is kept with a row, in characters.
MAX_ERROR = 4096
#: Longest time that a handler or a receiver may put a retry off.
MAX_DELAY = timedelta(days=7)


class Outcome(Exception):
    """Base of what a handler may return or raise besides finishing. A subclass need not call ``__init__``."""


class Retry(Outcome):
    """Try the row again; the attempt counts. ``after``: seconds or timedelta, None for the store's back-off."""

    after: timedelta | None = None
    reason: str = ""

    def __init__(self, after: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(after, reason)
        self.after = None if after is None else _delay(after)
        self.reason = reason


class Dead(Outcome):
    """Never try the row again: it moves to the dead letters with ``reason``."""

    reason: str = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(Outcome):
    """Not yet: put the row off to ``until`` (a datetime with a zone) without spending its attempt."""

    until: datetime | None = None

    def __init__(self, until: datetime) -> None:
        super().__init__(until)
        self.until = _zoned(until)


class Fate(StrEnum):
    """What becomes of a row; also the word in metrics."""

    DONE = "done"
    RETRIED = "retried"
    DEAD = "dead"
    SNOOZED = "snoozed"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row's fate with what it needs: ``error`` for RETRIED and DEAD, ``after`` and ``until`` where given.

    ``late``: the handler was told to stop, and may still run.
    """

    fate: Fate
    error: str = ""
    after: timedelta | None = None
    until: datetime | None = None
    late: bool = False


DONE = Verdict(Fate.DONE)
RELEASED = Verdict(Fate.RELEASED)


def judge_return(value: Any) -> Verdict:
    """The verdict on what a handler returned."""
    if value is None:
        return DONE
    if isinstance(value, Outcome):
        return judge_raise(value)
    return failed(f"the handler returned {type(value).__name__}; it must return nothing, or a Retry, Dead or Snooze")


def judge_raise(error: BaseException) -> Verdict:
    """The verdict on what a handler raised. Raises nothing itself: a subclass of ours may hold anything."""
    try:
        return _judge(error)
    except Exception as odd:  # noqa: BLE001 - one row's nonsense must not cost its batch the outcomes
        return failed(describe(odd))


def _judge(error: BaseException) -> Verdict:
    match error:
        case Retry():
            after = None if error.after is None else _delay(error.after)
            return Verdict(Fate.RETRIED, clean(str(error.reason or "the handler asked for a retry")), after=after)
        case Dead():
            return Verdict(Fate.DEAD, clean(str(error.reason or "the handler gave the row up")))
        case Snooze():
            return Verdict(Fate.SNOOZED, until=_zoned(error.until))
        case _:
            return failed(describe(error))


def failed(text: str, *, late: bool = False) -> Verdict:
    """A failure with the store's own back-off."""
    return Verdict(Fate.RETRIED, clean(text), late=late)


def clean(text: str) -> str:
    """An error text as it may be stored and shown: no credential, no bound parameter, no NUL, bounded."""
    text = redact(text).replace("\x00", "\N{REPLACEMENT CHARACTER}")
    # A lone surrogate is no UTF-8: the database would refuse the write, and with it the row's whole batch.
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"


def _zoned(until: Any) -> datetime:
    if not isinstance(until, datetime) or until.utcoffset() is None:
        raise ValueError(
            f"Snooze: until must be a datetime with a time zone, not {until!r}: "
            "datetime.now(UTC) + timedelta(seconds=5); Retry(after=5) takes seconds, and spends an attempt"
        )
    try:
        utc = until.astimezone(UTC)
    except OverflowError:  # a day from the last one, or the first
        utc = until.replace(tzinfo=UTC)
    # A class of somebody's own, or a zone that fails, would fail the write, and with it the outcomes of other rows.
    return datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)


def _delay(after: float | timedelta) -> timedelta:
    if isinstance(after, bool) or not isinstance(after, int | float | timedelta):
        raise TypeError(f"Retry: after must be seconds or a timedelta, not {type(after).__name__}")
    seconds = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"Retry: after must be 0 or more seconds, not {after!r}")
    return min(timedelta(seconds=min(seconds, MAX_DELAY.total_seconds())), MAX_DELAY)
