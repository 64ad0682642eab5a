"""How an outbox is doing, in figures that cost it little: for gauges, every 15 s, at any size."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import psycopg

from tickkeeper.outbox.looking import Look, OutboxLooks
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.sampler_walk import Part, Walk

#: Counts are exact up to it; beyond it they mean "at least".
COUNTED = 10_000
#: Tenants with their kinds that one statement steps through.
_STEPS = 1_000
#: Of those with due rows so many are asked whether they have others, too.
_ASKED = 400
#: Rows of a part that are looked at in the table, where their leases stand: most are on a page of their own.
_LOOKED = 2_000
#: Statements of a sample that is taken once and not every 15 s, and how long they may take in all.
_PARTS_AT_ONCE = 100
_SECONDS_AT_ONCE = 4.0
#: Seconds for each statement.
STATEMENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who keeps dead rows from being cleaned up. ``holder``: session, prepared transaction or replication slot.

    ``name``: the session's application_name, or the name of the other two. ``transactions``: how many have begun since;
    ``seconds``: since when, None where our role may not see it.
    """

    holder: str
    pid: int | None
    name: str
    transactions: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """An outbox at one moment. Ages in seconds, None where there is no such row.

    ``exact``: the counts of live rows are exact; else each says "at least", and ``oldest_created`` is that of the first
    COUNTED rows by id. ``behind``: rows that wait for an earlier one of their ordering_key. ``dead`` is exact below
    COUNTED. ``oldest_due``: since the earliest due row became due, whether a worker has it or not; a retry is due anew.
    ``oldest_created``: since the oldest row was enqueued that has been due at some time.
    ``expired``: rows whose lease ran out and that nobody claimed since, and how long ago the first did.
    ``tenants``: who has rows; ``every_tenant`` is False where there are more, or the time was up.
    Of an outbox with more than 1,000 tenants and kinds each sample looks at a part, and tells of the last whole round.
    """

    ready: int = 0
    leased: int = 0
    scheduled: int = 0
    behind: int = 0
    dead: int = 0
    exact: bool = True
    oldest_due: float | None = None
    oldest_created: float | None = None
    expired: int = 0
    oldest_expired: float | None = None
    tenants: tuple[str, ...] = ()
    every_tenant: bool = True
    dead_tuples: int = 0
    holders: tuple[Holder, ...] = ()
    #: seconds since 1970 by the database's clock
    taken_at: float = 0.0
    #: how long it took, in seconds
    took: float = 0.0


class OutboxSampler:
    """Takes samples. Of several that ask at once for one schema of a database, one gets a sample.

    The turn is a lock of the transaction, which goes with any pooler; ``hold`` is for how many seconds it is kept after
    the sample, so that others who ask a moment later find it taken.
    """

    def __init__(self, dsn: str, *, schema: str = DEFAULT_SCHEMA, hold: float = 0.0) -> None:
        """Opened and closed like a store. ValueError: the dsn cannot be read, or a bad schema name."""
        self._looks = OutboxLooks(dsn, schema=schema, patience=7 * STATEMENT_SECONDS + hold)
        self._name = f"sampler of outbox {schema}"
        self._hold = hold
        self._walk = Walk()

    async def open(self) -> Self:
        """Make it ready; connects when asked first."""
        await self._looks.open()
        return self

    async def close(self) -> None:
        """Give the connection back; safe to call twice."""
        await self._looks.close()

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def now(self) -> float:
        """The database's clock, in seconds since 1970. Raises as ``OutboxStore`` does."""
        return await self._looks.run(_clock, seconds=STATEMENT_SECONDS)

    async def sample(self, *, alone: bool = True) -> Sample | None:
        """Take one; None when it is somebody else's turn, unless ``alone`` is False. Raises as ``OutboxStore`` does."""
        return await self._looks.run(lambda look: self._sampled(look, alone=alone), seconds=STATEMENT_SECONDS)

    async def _sampled(self, look: Look, *, alone: bool) -> Sample | None:
        began = time.monotonic()
        if alone and not (await look.one("sample_turn", name=self._name))[0]:
            return None
        sample = Sample(taken_at=await _clock(look))
        for part in (_dead, _upkeep, _first):
            sample = await _unless_late(look, part, sample)
        sample = await self._rows(look, sample, parts=1 if alone else _PARTS_AT_ONCE)
        sample = replace(sample, took=time.monotonic() - began)
        if alone:
            await _keep_turn(self._hold)
        return sample

    async def _rows(self, look: Look, sample: Sample, *, parts: int) -> Sample:
        """All rows of a small outbox; of a larger one what is known so far, and the next parts of it."""

        async def all_rows(look: Look, sample: Sample) -> Sample:
            record = await look.one("sample_all", bound=COUNTED)
            return _told(sample, Part.read(record, sample.taken_at), every_tenant=True)

        async def next_part(look: Look, sample: Sample) -> Sample:
            tenant, kind = self._walk.behind
            bounds = {"bound": COUNTED, "looked": _LOOKED, "pairs": _STEPS, "asked": _ASKED}
            record = await look.one("sample_heads", **bounds, last_tenant=tenant, last_kind=kind)
            self._walk.add(Part.read(record, sample.taken_at))
            return sample

        if sample.exact:
            self._walk = Walk()
            return await _unless_late(look, all_rows, sample)
        deadline = time.monotonic() + _SECONDS_AT_ONCE
        for _ in range(parts):
            behind = self._walk.behind
            await _unless_late(look, next_part, sample)
            if self._walk.whole or self._walk.behind == behind or time.monotonic() > deadline:
                break
        known = self._walk.known()
        return sample if known is None else _told(sample, known, every_tenant=self._walk.whole)


def _told(sample: Sample, known: Part, *, every_tenant: bool) -> Sample:
    return replace(
        sample,
        ready=min(COUNTED, known.ready),
        leased=min(COUNTED, known.leased),
        scheduled=min(COUNTED, known.scheduled),
        behind=min(COUNTED, known.behind),
        oldest_due=None if known.due_at is None else sample.taken_at - known.due_at,
        expired=min(COUNTED, known.expired),
        oldest_expired=None if known.expired_at is None else sample.taken_at - known.expired_at,
        tenants=known.tenants,
        every_tenant=every_tenant,
    )


async def _keep_turn(seconds: float) -> None:
    # No statement runs and no table is locked meanwhile, so nothing is held up.
    await asyncio.sleep(seconds)


async def _clock(look: Look) -> float:
    ((moment,),) = await look.all("database_time")
    return float(moment.timestamp())


async def _unless_late(look: Look, part: Callable[[Look, Sample], Awaitable[Sample]], sample: Sample) -> Sample:
    """The sample with one part more. What takes too long is left out: the rest is worth having."""
    try:
        async with look.apart():
            return await part(look, sample)
    except psycopg.errors.QueryCanceled:
        return replace(sample, exact=False, every_tenant=False)


async def _dead(look: Look, sample: Sample) -> Sample:
    (dead,) = await look.one("sample_dead", bound=COUNTED)
    return replace(sample, dead=dead)


async def _first(look: Look, sample: Sample) -> Sample:
    seen, oldest_created = await look.one("sample_first", bound=COUNTED)
    return replace(sample, exact=seen <= COUNTED, oldest_created=oldest_created)


async def _upkeep(look: Look, sample: Sample) -> Sample:
    (dead_tuples,) = await look.one("sample_upkeep")
    holders = tuple(Holder(*record) for record in await look.all("sample_horizon"))
    return replace(sample, dead_tuples=dead_tuples, holders=holders)
