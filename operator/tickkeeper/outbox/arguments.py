"""Arguments of a store's methods, checked: what no state of the database could mend is a ValueError, at once."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

from tickkeeper.outbox.new_row import MAX_DELAY, check_name
from tickkeeper.outbox.store import Failure, Snooze
from tickkeeper.outbox.text import clean_error

MAX_LIMIT = 10_000
MAX_LEASE = timedelta(days=1)
_LARGEST_ID = 2**63 - 1
#: PostgreSQL knows later years, Python does not; a time zone may shift a time by a day.
_LATEST = datetime(9998, 12, 31, tzinfo=UTC)
_EARLIEST = datetime(2, 1, 1, tzinfo=UTC)


def checked_limit(limit: int) -> int:
    """Rows of one claim."""
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit is {limit}: must be 1 to {MAX_LIMIT}")
    return limit


def lease_seconds(lease: timedelta) -> float:
    """A lease in seconds."""
    if not timedelta() < lease <= MAX_LEASE:
        raise ValueError(f"lease is {lease}: must be longer than 0 and at most {MAX_LEASE}")
    return lease.total_seconds()


def unique_kinds(kinds: Sequence[str]) -> list[str]:
    """Each kind once."""
    if isinstance(kinds, str):
        raise ValueError(  # noqa: TRY004 - one error for every bad argument
            f"kinds is {kinds!r}: must be a sequence of strings, or None"
        )
    return list(dict.fromkeys(kinds))


def sorted_ids(ids: Sequence[int | UUID]) -> list[int]:
    """Each id once, ascending."""
    if set(map(type, ids)) == {int}:  # the common case, and a quick one
        ordered = sorted(set(cast("Sequence[int]", ids)))
        if ordered[0] >= -_LARGEST_ID and ordered[-1] <= _LARGEST_ID:
            return ordered
    return sorted({_integer(each) for each in ids})


def array_text(ids: Sequence[int]) -> str:
    """Ids as PostgreSQL writes an array: psycopg would make an object for each."""
    return "{" + ",".join(map(str, ids)) + "}"


def unique_failures(failures: Sequence[Failure]) -> list[Failure]:
    """Ordered by id, one for each (the first given), error texts and waits made fit to be stored."""
    return [
        Failure(row_id, clean_error(each.error), _bounded(each.after), each.dead)
        for row_id, each in sorted({_integer(each.id): each for each in reversed(failures)}.items())
    ]


def unique_snoozes(snoozes: Sequence[Snooze]) -> list[Snooze]:
    """Ordered by id, one for each (the first given), with times that every side can read."""
    return [
        Snooze(row_id, _readable(each.until))
        for row_id, each in sorted({_integer(each.id): each for each in reversed(snoozes)}.items())
    ]


def paused_names(tenant_id: str | None, kind: str | None) -> tuple[str, str]:
    """What a pause names, '' for all."""
    if tenant_id is None and kind is None:
        raise ValueError("tenant_id and kind are both None: one of them must say what to pause")
    for name, value in (("tenant_id", tenant_id), ("kind", kind)):
        if value is not None:
            check_name(name, value)
    return tenant_id or "", kind or ""


def exact_kind(kind: str | None) -> str | None:
    """A kind by which rows are chosen."""
    if isinstance(kind, str) and "*" in kind:
        raise ValueError(f"kind is {kind!r}: must be an exact kind, patterns are for handlers")
    return kind


def age_seconds(older_than: timedelta) -> float:
    """How long ago rows must have died to be purged, in seconds; at most a century."""
    if older_than < timedelta():
        raise ValueError(f"older_than is {older_than}: must not be negative")
    return min(older_than, timedelta(days=36_525)).total_seconds()


def _integer(row_id: int | UUID) -> int:
    if isinstance(row_id, bool) or not isinstance(row_id, int) or not -_LARGEST_ID <= row_id <= _LARGEST_ID:
        raise ValueError(f"row id is {row_id!r}: must be an integer of 64 bits in this store")
    return row_id


def _bounded(after: timedelta | None) -> timedelta | None:
    # Clamped and not refused: the rows of a batch must not be stranded because one handler asked for nonsense.
    return None if after is None else min(max(after, timedelta()), MAX_DELAY)


def _readable(until: datetime) -> datetime:
    if until.utcoffset() is None:
        raise ValueError(f"until is {until}: must be a datetime with a time zone")
    return min(max(until, _EARLIEST), _LATEST)
