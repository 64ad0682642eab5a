"""Working one claimed batch: handlers with bounded concurrency, their verdicts written as they come, the lease held."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import cast
from uuid import UUID

from tickkeeper.outbox.store import Failure, OutboxStore, Row, Settled, StoreUnavailable, TransactionalStore
from tickkeeper.outbox.store import Snooze as SnoozeWrite
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.worker.exactly_once import Ended, Transactions
from tickkeeper.worker.handlers import Handler
from tickkeeper.worker.invoke import Invoker, Job
from tickkeeper.worker.jobs import Jobs, Line
from tickkeeper.worker.lease import Lease
from tickkeeper.worker.outcome import DONE, RELEASED, Fate, Verdict
from tickkeeper.worker.report import Report
from tickkeeper.worker.stop import Stop

_log = get_logger(__name__)

# Quick handlers share one write; slow ones do not wait long for theirs, so that a crash repeats little.
_LINGER = 0.02
_RETRY_WRITE = 0.2
# After a hard stop the process has to go: outcomes and the hand-back get this long, with a database or without.
_LAST_WRITE = 1.5

_TRANSIENT = (StoreUnavailable, TimeoutError)

_id = attrgetter("id")


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
        handler_of: Callable[[str], Handler],
        invoker: Invoker,
        seats: asyncio.Semaphore,
        concurrency: int,
        stop: Stop,
        report: Report,
    ) -> None:
        self._store = store
        self._lease = lease
        self._invoker = invoker
        self._seats = seats
        self._concurrency = concurrency
        self._stop = stop
        self._report = report
        self._rows = list(rows)
        self._jobs = Jobs(self._rows, handler_of, invoker.gates.of)
        #: rows whose outcome is not written yet: what the lease is held for
        self._outstanding: set[int | UUID] = set(map(_id, self._rows))
        #: rows that are over, but for those in ``_done``
        self._judged: set[int | UUID] = set()
        #: what is to be written: rows that are done, apart since they are nearly all, and the verdicts on others
        self._done: list[Row] = []
        self._verdicts: list[tuple[Row, Verdict]] = []
        self._news = asyncio.Event()
        self._all_in = asyncio.Event()
        self.counts = Counts(claimed=len(self._rows))
        self.error: Exception | None = None

    async def run(self) -> Counts:
        """Work the rows; returns when each has its outcome written, was handed back, or was lost."""
        handling = asyncio.create_task(self._handle(), name="tick handling")
        settling = asyncio.create_task(self._settle(), name="tick settling")
        holding = asyncio.create_task(self._lease.hold(self._outstanding), name="tick lease")
        cut = asyncio.create_task(self._stop.cut(), name="tick cut")
        try:
            await asyncio.wait({handling, holding, cut}, return_when=asyncio.FIRST_COMPLETED)
            lost = not handling.done() and holding.done()
            broken = await _end(handling)
            self._close(lost=lost, broken=broken is not None)
            await asyncio.wait({settling, cut}, return_when=asyncio.FIRST_COMPLETED)
            if not settling.done():
                await asyncio.wait({settling}, timeout=_LAST_WRITE)
            if settling.done():
                settling.result()
            else:
                self.error = self.error or StoreUnavailable("outcomes could not be written before the end")
            if broken is not None:
                raise broken  # ours, and the tick's; what had happened is written
        finally:
            for task in (handling, settling, holding, cut):
                task.cancel()
            await asyncio.gather(handling, settling, holding, cut, return_exceptions=True)
        return self.counts

    async def _handle(self) -> None:
        """As many seats as may be, one after the other: quick handlers are through before a second is needed."""
        tasks: list[asyncio.Task[None]] = []
        try:
            # Again where a row's successor in its run is another line's, whose seats have left.
            while (lines := [line for line in self._jobs.lines() if line.waiting]) and not self._stop.stopping:
                for line in lines:
                    for _ in range(min(line.gate.most, self._concurrency) if line.gate else self._concurrency):
                        if not line.waiting:
                            break
                        tasks.append(asyncio.create_task(self._work(line), name="tick seat"))
                        await asyncio.sleep(0)
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, line: Line) -> None:
        if line.gate is None and not line.transactional:
            async with self._seats:
                await self._invoker.work(self._until_stopped(line), self._put)
            return
        for job in self._until_stopped(line):
            # A handler's own bound holds for the whole process, so its turn is given up after each call. It takes no
            # seat as well: one that waited for a seat of this tick would hold up the handler's rows in all others.
            async with line.gate or self._seats:
                if self._stop.stopping:
                    return
                if line.transactional:
                    await self._in_transaction(*job)
                else:
                    await self._invoker.work([job], self._put)

    def _until_stopped(self, line: Line) -> Iterator[Job]:
        waiting, stop = line.waiting, self._stop
        while waiting and stop.reason is None:
            yield waiting.popleft()

    async def _in_transaction(self, handler: Handler, rows: Sequence[Row]) -> None:
        store = cast(TransactionalStore, self._store)
        transactions = Transactions(
            store, self._lease.id, invoker=self._invoker, stop=self._stop, put=self._report.called
        )
        ended = await transactions.run(handler, rows)
        self.error = self.error or ended.error  # the rows that were not begun are handed back
        self.counts.done += len(ended.done)
        self.counts.fenced += len(ended.fenced)
        self._report.settled(ended.done, Fate.DONE)
        self._report.fenced(len(ended.fenced))
        for row in ended.fenced:
            self._jobs.lose(row)
        over = [*ended.done, *ended.fenced]
        self._judged.update(map(_id, over))
        self._outstanding.difference_update(map(_id, over))
        for row in over:
            if row.ordering_key is not None:
                self._leave(self._jobs.judged(row, DONE), lost=self._jobs.lost(row))
        self._judge_list(ended.failed)
        self._skip(rows, ended)

    def _skip(self, rows: Sequence[Row], ended: Ended) -> None:
        """Rows of a transaction that were passed over, since one before them in their run failed or was lost."""
        rest = [row for row in rows if row.id not in self._judged and ended.over(row)]
        self._leave([row for row in rest if not self._jobs.lost(row)], lost=False)
        self._leave([row for row in rest if self._jobs.lost(row)], lost=True)

    def _put(self, job: Job, verdict: Verdict, seconds: float) -> None:
        self._report.called(job, verdict, seconds)
        argument = job[1]
        if argument.__class__ is list:
            self._judge_list([(row, verdict) for row in argument])
        elif verdict is DONE and argument.ordering_key is None:
            if not self._done:
                self._news.set()
            self._done.append(argument)
        else:
            self._judge(argument, verdict)
            self._report.judged(argument, verdict)

    def _judge_list(self, verdicts: Sequence[tuple[Row, Verdict]]) -> None:
        """Rows that ended together. Of a run that failed the first is written; that write hands the others back."""
        failed: set[str] = set()
        for row, verdict in verdicts:
            if row.ordering_key is not None and verdict.fate is not Fate.DONE:
                if row.ordering_key in failed:
                    self._leave([row], lost=self._jobs.lost(row))
                    continue
                failed.add(row.ordering_key)
            self._judge(row, verdict)
            self._report.judged(row, verdict)

    def _judge(self, row: Row, verdict: Verdict) -> None:
        """A verdict that is to be written."""
        if verdict.fate is Fate.DONE:
            self._done.append(row)
        else:
            self._judged.add(row.id)
            self._verdicts.append((row, verdict))
        self._news.set()
        if row.ordering_key is not None:
            self._leave(self._jobs.judged(row, verdict), lost=self._jobs.lost(row))

    def _leave(self, rest: Sequence[Row], *, lost: bool) -> None:
        """The rest of a run: the write of the row before hands it back, or it is with somebody else."""
        for row in rest:
            self._judged.add(row.id)
            self._outstanding.discard(row.id)
        if lost:
            self.counts.fenced += len(rest)
            self._report.fenced(len(rest))
        else:
            self.counts.released += len(rest)
            self._report.settled(rest, Fate.RELEASED)

    def _close(self, *, lost: bool, broken: bool) -> None:
        """All verdicts are in: what was never started, or was cut, is handed back, unless it is no longer ours.

        Nor where the handling broke: the row that broke it would come at once, and for ever.
        """
        self._judged.update(map(_id, self._done))
        unjudged = [row for row in self._rows if row.id not in self._judged]
        if broken:
            self._judged.update(row.id for row in unjudged)
        elif lost:
            self.counts.fenced += len(unjudged)
            self._report.fenced(len(unjudged))
        else:
            # Not by _judge: the rows of a run go back together.
            self._judged.update(row.id for row in unjudged)
            self._verdicts += [(row, RELEASED) for row in unjudged]
        self._all_in.set()
        self._news.set()

    async def _settle(self) -> None:
        """Write verdicts in groups, until all are in and written."""
        while self._done or self._verdicts or not self._all_in.is_set():
            await self._news.wait()
            self._news.clear()
            if not self._all_in.is_set():
                # Not wait_for: on Python 3.11 it may swallow a cancellation.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER):
                        await self._all_in.wait()
            done, self._done = self._done, []
            verdicts, self._verdicts = self._verdicts, []
            self._judged.update(map(_id, done))
            if done:
                await self._persist(Fate.DONE, done, [])
            await self._write(verdicts)

    async def _write(self, verdicts: list[tuple[Row, Verdict]]) -> None:
        by_fate: dict[Fate, list[tuple[Row, Verdict]]] = {}
        for each in verdicts:
            by_fate.setdefault(each[1].fate, []).append(each)
        for fate in Fate:
            if group := by_fate.get(fate):
                await self._persist(fate, [row for row, _ in group], [verdict for _, verdict in group])

    async def _persist(self, fate: Fate, rows: list[Row], verdicts: list[Verdict]) -> None:
        """One write; while the lease holds it is worth repeating, since the effects have happened."""
        while True:
            try:
                async with asyncio.timeout(max(0.05, self._lease.left)):
                    settled = await self._send(fate, rows, verdicts)
                break
            except Exception as error:  # noqa: BLE001 - reported once, by the tick
                if not isinstance(error, _TRANSIENT) or self._lease.left <= _RETRY_WRITE:
                    self.error = error
                    _log.warning("outcomes could not be written", rows=len(rows), outcome=fate, error=error)
                    return
                await asyncio.sleep(_RETRY_WRITE)
        self._count(fate, rows, settled)

    async def _send(self, fate: Fate, rows: list[Row], verdicts: list[Verdict]) -> Settled:
        lease_id, ids = self._lease.id, list(map(_id, rows))
        match fate:
            case Fate.DONE:
                return await self._store.ack(lease_id, ids)
            case Fate.RETRIED | Fate.DEAD:
                return await self._store.fail(lease_id, list(map(_failure, rows, verdicts)))
            case Fate.SNOOZED:
                return await self._store.snooze(lease_id, list(map(_snooze, rows, verdicts)))
            case Fate.RELEASED:
                return await self._store.release(lease_id, ids)

    def _count(self, fate: Fate, rows: list[Row], settled: Settled) -> None:
        counts = self.counts
        counts.fenced += settled.fenced
        counts.dead += settled.dead
        name = "retried" if fate is Fate.DEAD else fate.value
        setattr(counts, name, getattr(counts, name) + settled.changed - settled.dead)
        self._outstanding.difference_update(map(_id, rows))
        if settled.lost:
            for row in rows:
                if row.id in settled.lost:
                    self._jobs.lose(row)
        self._report.fenced(settled.fenced)
        if settled.fenced:
            if len(settled.lost) < settled.fenced:
                return  # a store that does not tell which: then only their number is known
            rows = [row for row in rows if row.id not in settled.lost]
        died = [row for row in rows if row.attempts >= row.max_attempts] if settled.dead else []
        if fate is Fate.RETRIED and died:
            self._report.settled(died, Fate.DEAD)
            self._report.settled((row for row in rows if row.attempts < row.max_attempts), fate)
        else:
            self._report.settled(rows, fate)


def _failure(row: Row, verdict: Verdict) -> Failure:
    return Failure(row.id, verdict.error, after=verdict.after, dead=verdict.fate is Fate.DEAD)


def _snooze(row: Row, verdict: Verdict) -> SnoozeWrite:
    assert verdict.until is not None  # as each verdict of that fate has it
    return SnoozeWrite(row.id, verdict.until)


async def _end(task: "asyncio.Task[None]") -> BaseException | None:
    """Cancel a task if it still runs, and wait for it; returns what it died of."""
    task.cancel()
    await asyncio.wait({task})
    return None if task.cancelled() else task.exception()
