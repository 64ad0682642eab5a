"""Working one claimed batch: handlers with bounded concurrency, their verdicts written as they come, the lease held."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from uuid import UUID

from tickkeeper.outbox.store import Failure, OutboxStore, Row, Settled, StoreUnavailable
from tickkeeper.outbox.store import Snooze as SnoozeWrite
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.worker.lease import Lease
from tickkeeper.worker.outcome import RELEASED, Fate, Verdict, not_before
from tickkeeper.worker.stop import Stop

_log = get_logger(__name__)

# Quick handlers share one write; slow ones do not wait long for theirs, so that a crash repeats little.
_LINGER = 0.02
_RETRY_WRITE = 0.2
# After a hard stop the process has to go: outcomes and the hand-back get this long, with a database or without.
_LAST_WRITE = 1.5

_TRANSIENT = (StoreUnavailable, TimeoutError)

Invoke = Callable[[Row], Awaitable[Verdict]]
Observe = Callable[[Row, Fate], None]


@dataclass(slots=True)
class Counts:
    """What became of rows. ``fenced``: no longer ours when their outcome was written, or the lease was lost."""

    claimed: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    snoozed: int = 0
    released: int = 0
    fenced: int = 0

    def add(self, other: "Counts") -> None:
        """Sum, in place."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Batch:
    """One claim's rows. ``error`` is what kept outcomes from being written; such rows come back after the lease."""

    def __init__(
        self,
        store: OutboxStore,
        rows: Iterable[Row],
        lease: Lease,
        *,
        invoke: Invoke,
        concurrency: int,
        stop: Stop,
        observe: Observe = lambda _row, _fate: None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._invoke = invoke
        self._concurrency = concurrency
        self._stop = stop
        self._observe = observe
        self._rows = list(rows)
        self._waiting = iter(self._rows)
        self._outstanding: dict[int | UUID, Row] = {row.id: row for row in self._rows}
        self._judged: set[int | UUID] = set()
        self._verdicts: list[tuple[Row, Verdict]] = []
        self._news = asyncio.Event()
        self._all_in = asyncio.Event()
        self.counts = Counts(claimed=len(self._rows))
        self.error: Exception | None = None

    async def run(self) -> Counts:
        """Work the rows; returns when each has its outcome written, was handed back, or was lost."""
        handling = asyncio.create_task(self._handle(), name="tick handling")
        settling = asyncio.create_task(self._settle(), name="tick settling")
        holding = asyncio.create_task(self._lease.hold(self._outstanding.keys()), name="tick lease")
        cut = asyncio.create_task(self._stop.cut(), name="tick cut")
        try:
            await asyncio.wait({handling, holding, cut}, return_when=asyncio.FIRST_COMPLETED)
            lost = not handling.done() and holding.done()
            await _end(handling)
            self._close(lost=lost)
            await asyncio.wait({settling, cut}, return_when=asyncio.FIRST_COMPLETED)
            if not settling.done():
                await asyncio.wait({settling}, timeout=_LAST_WRITE)
            if settling.done():
                settling.result()
            else:
                self.error = self.error or StoreUnavailable("outcomes could not be written before the end")
        finally:
            for task in (handling, settling, holding, cut):
                task.cancel()
            await asyncio.gather(handling, settling, holding, cut, return_exceptions=True)
        return self.counts

    async def _handle(self) -> None:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(min(self._concurrency, len(self._rows))):
                lanes.create_task(self._lane(), name="tick lane")

    async def _lane(self) -> None:
        for row in self._waiting:
            if self._stop.stopping:
                self._put(row, RELEASED)
                continue
            self._put(row, await self._invoke(row))

    def _put(self, row: Row, verdict: Verdict) -> None:
        self._judged.add(row.id)
        self._verdicts.append((row, verdict))
        self._news.set()

    def _close(self, *, lost: bool) -> None:
        """All verdicts are in: what was never started, or was cut, is handed back, unless it is no longer ours."""
        unjudged = [row for row in self._rows if row.id not in self._judged]
        if lost:
            self.counts.fenced += len(unjudged)
        else:
            for row in unjudged:
                self._put(row, RELEASED)
        self._all_in.set()
        self._news.set()

    async def _settle(self) -> None:
        """Write verdicts in groups, until all are in and written."""
        while not (self._all_in.is_set() and not self._verdicts):
            await self._news.wait()
            self._news.clear()
            if not self._all_in.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._all_in.wait(), _LINGER)
            verdicts, self._verdicts = self._verdicts, []
            await self._write(verdicts)

    async def _write(self, verdicts: list[tuple[Row, Verdict]]) -> None:
        by_fate: dict[Fate, list[tuple[Row, Verdict]]] = {}
        for row, verdict in verdicts:
            by_fate.setdefault(verdict.fate, []).append((row, verdict))
        for fate in Fate:
            if group := by_fate.get(fate):
                await self._persist(fate, group)

    async def _persist(self, fate: Fate, group: list[tuple[Row, Verdict]]) -> None:
        """One write; while the lease holds it is worth repeating, since the effects have happened."""
        while True:
            try:
                async with asyncio.timeout(max(0.05, self._lease.left)):
                    settled = await self._send(fate, group)
                break
            except Exception as error:  # noqa: BLE001 - reported once, by the tick
                if not isinstance(error, _TRANSIENT) or self._lease.left <= _RETRY_WRITE:
                    self.error = error
                    _log.warning("outcomes could not be written", rows=len(group), outcome=fate, error=error)
                    return
                await asyncio.sleep(_RETRY_WRITE)
        self._count(fate, group, settled)

    async def _send(self, fate: Fate, group: list[tuple[Row, Verdict]]) -> Settled:
        lease_id, ids = self._lease.id, [row.id for row, _ in group]
        match fate:
            case Fate.DONE:
                return await self._store.ack(lease_id, ids)
            case Fate.RETRIED | Fate.DEAD:
                return await self._store.fail(lease_id, [_failure(row, verdict) for row, verdict in group])
            case Fate.SNOOZED:
                return await self._store.snooze(lease_id, [_snooze(row, verdict) for row, verdict in group])
            case Fate.RELEASED:
                return await self._store.release(lease_id, ids)

    def _count(self, fate: Fate, group: list[tuple[Row, Verdict]], settled: Settled) -> None:
        counts = self.counts
        counts.fenced += settled.fenced
        counts.dead += settled.dead
        name = "retried" if fate is Fate.DEAD else fate.value
        setattr(counts, name, getattr(counts, name) + settled.changed - settled.dead)
        for row, _ in group:
            self._outstanding.pop(row.id, None)
            # Which rows of a group were fenced is not told: then only their number is known.
            if not settled.fenced:
                dead = fate is Fate.RETRIED and settled.dead and row.attempts >= row.max_attempts
                self._observe(row, Fate.DEAD if dead else fate)


def _failure(row: Row, verdict: Verdict) -> Failure:
    return Failure(row.id, verdict.error, after=verdict.after, dead=verdict.fate is Fate.DEAD)


def _snooze(row: Row, verdict: Verdict) -> SnoozeWrite:
    now = datetime.now(UTC)
    return SnoozeWrite(row.id, not_before(verdict.until or now, now))


async def _end(task: "asyncio.Task[None]") -> None:
    """Cancel a task if it still runs, and wait for it; raises what it died of."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
