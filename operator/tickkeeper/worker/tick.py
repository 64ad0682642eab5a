"""One tick: drain one tenant's outbox until it is empty or the time budget is used."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import cast
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from tickkeeper.outbox.store import Claim, Oldest, OutboxStore
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.worker.batch import Batch, Counts
from tickkeeper.worker.handlers import Handler, Registry
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.lease import Lease
from tickkeeper.worker.limits import Limits, ended
from tickkeeper.worker.report import Report
from tickkeeper.worker.stop import Stop

_log = get_logger(__name__)

_NOTHING = UUID(int=0)
#: Kinds that one line of the log names.
_MOST_NAMED = 20
#: After how many seconds of a batch, or after the budget if that is longer, another claim is made beside it.
_LOOK_BESIDES = 1.0
#: Seconds between two looks at which kinds fit a pattern.
_KINDS_EVERY = 1.0


def never() -> bool:
    """A tick that keeps its budget."""
    return False


class TickResult(BaseModel):
    """What a tick did: the BullMQ job's return value, as camelCase JSON.

    ``claimed`` = done + retried + dead + snoozed + released + fenced, but for rows that went to the dead letters
    without a handler (``dead`` counts them too). ``fenced``: no longer ours when their outcome was to be written.
    ``unsupported``: ready rows that stay, where some are of kinds that no handler here takes (paused ones count too).
    ``oldestAgeSeconds``: age of the oldest row still ready. ``ended``: empty, budget, shutdown, lost (the running
    key), or skipped.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    tenant_id: str
    claimed: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0
    snoozed: int = 0
    released: int = 0
    fenced: int = 0
    unsupported: int = 0
    oldest_age_seconds: float | None = None
    duration_ms: int = 0
    ended: str = "empty"
    skipped: str | None = None


async def drain(
    store: OutboxStore,
    tenant_id: str,
    registry: Registry,
    *,
    invoker: Invoker,
    limits: Limits | None = None,
    stop: Stop | None = None,
    metrics: WorkerMetrics | None = None,
    goes_on: Callable[[], bool] = never,
) -> TickResult:
    """Claim and handle batches of one tenant until none is left, the budget is used, or ``stop`` says so.

    ``goes_on``: asked beyond the budget, whether to go on all the same. Where a batch takes long, what became due
    meanwhile is claimed beside it, in a lane that is free.

    Rows whose handler fails do not fail the tick. Raises StoreUnavailable or SchemaError when the outbox cannot
    be read or written; rows whose outcome was not written come back after their lease.
    """
    drained = _Drain(store, tenant_id, registry, invoker, limits or Limits(), stop or Stop(), metrics, goes_on)
    return await drained.run()


class _Drain:
    def __init__(
        self,
        store: OutboxStore,
        tenant_id: str,
        registry: Registry,
        invoker: Invoker,
        limits: Limits,
        stop: Stop,
        metrics: WorkerMetrics | None,
        goes_on: Callable[[], bool],
    ) -> None:
        self._store = store
        self._tenant = tenant_id
        self._registry = registry
        self._invoker = invoker
        self._limits = limits
        self._lease = limits.lease or store.default_lease
        self._stop = stop
        self._goes_on = goes_on
        self._report = Report(registry, metrics)
        self._seats = asyncio.Semaphore(limits.concurrency)
        self._lanes_left: set[asyncio.Task[str | None]] = set()
        self._working: set[asyncio.Task[str | None]] = set()
        self._failed = False
        self._counts = Counts()
        self._kinds: list[str] | None = None
        #: when what fits a pattern is to be looked up again (monotonic seconds); never where there is no pattern
        self._kinds_until = math.inf

    async def run(self) -> TickResult:
        began = time.monotonic()
        end = await self._lanes(began)
        oldest, unsupported = await self._left(end)
        counts = self._counts
        return TickResult(
            tenant_id=self._tenant,
            claimed=counts.claimed,
            done=counts.done,
            retried=counts.retried,
            dead=counts.dead,
            snoozed=counts.snoozed,
            released=counts.released,
            fenced=counts.fenced,
            unsupported=unsupported,
            oldest_age_seconds=oldest.seconds,
            duration_ms=round((time.monotonic() - began) * 1000),
            ended=end,
        )

    async def _lanes(self, began: float) -> str:
        """Drain in as many lanes as there is work for, and say why it ended; raises what ended a lane.

        No TaskGroup: it would cancel the batches of the others, whose effects have happened.
        """
        self._start(began)
        error: BaseException | None = None
        end = ""
        pause = max(_LOOK_BESIDES, self._limits.budget.total_seconds())
        try:
            while self._lanes_left:
                done, _ = await asyncio.wait(self._lanes_left, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if (
                    not done
                    and len(self._working) < self._limits.lanes
                    and self._over(time.monotonic() - began) is None
                ):
                    self._start(began)
                self._lanes_left -= done
                for lane in done:
                    if failed := lane.exception():
                        error = error or failed
                    else:
                        end = lane.result() or end
        finally:
            for lane in self._lanes_left:
                lane.cancel()
            await asyncio.gather(*self._lanes_left, return_exceptions=True)
        if error is not None:
            raise error
        return end

    def _start(self, began: float) -> None:
        lane = asyncio.create_task(self._lane(began), name=f"lane {self._tenant}")
        self._lanes_left.add(lane)
        self._working.add(lane)

    async def _lane(self, began: float) -> str | None:
        try:
            return await self._batches(began)
        except BaseException:
            self._failed = True
            raise
        finally:
            self._make_way()

    def _make_way(self) -> None:
        """This lane counts no more."""
        self._working.discard(cast("asyncio.Task[str | None]", asyncio.current_task()))

    def _over(self, elapsed: float, *, empty: bool = False) -> str | None:
        return ended(
            stop_reason=self._stop.reason,
            elapsed=elapsed,
            budget=self._limits.budget,
            empty=empty or self._failed,
            goes_on=self._goes_on(),
        )

    async def _batches(self, began: float) -> str | None:
        """Claim and work batches, one after the other; returns what ended it, None where it makes way."""
        empty, tried, pressure = False, False, self._invoker.pressure

        def over() -> str | None:
            # On a busy machine the smallest budget is over before the first claim: each tick makes one.
            return self._over(time.monotonic() - began if tried else 0.0, empty=empty)

        while not (end := over()):
            tried = True
            if pressure.full:
                await pressure.room(lambda: over() is None)
                continue
            kinds = await self._claimable()
            alone = self._invoker.alone
            await alone.room()
            with alone.claiming():
                since = time.monotonic()
                claim = Claim(_NOTHING) if not kinds else await self._claim(kinds)
                self._counts.dead += claim.buried
                self._report.buried(self._tenant, claim.buried)
                # Two rows that come alone do not share one process, nor does one take the other lanes' rows along. The
                # later one goes back unharmed: a claimed row that waits would share the fate of the one that runs.
                makes_way = claim.alone and len(self._working) > 1
                goes_back = makes_way or (claim.alone and alone.taken)
                if makes_way:
                    self._make_way()
                if goes_back:
                    await self._store.release(claim.lease_id, [row.id for row in claim.rows])
            if makes_way:
                return None  # the last lane that is left claims it again
            if goes_back:
                await alone.over()
                continue
            if not claim.rows:
                empty = not claim.buried
                continue
            full = len(claim.rows) >= self._limits.batch_size
            if full and len(self._working) < self._limits.lanes and over() is None:
                self._start(began)
            await self._work(claim, since)
        return end

    async def _claim(self, kinds: list[str]) -> Claim:
        began = time.monotonic()
        claim = await self._store.claim(self._tenant, kinds=kinds, limit=self._limits.batch_size, lease=self._lease)
        self._report.claimed(len(claim.rows), time.monotonic() - began)
        return claim

    async def _work(self, claim: Claim, since: float) -> None:
        lease = Lease(self._store, claim.lease_id, self._lease, since=since, clock=time.monotonic)
        batch = Batch(
            self._store,
            claim.rows,
            lease,
            handler_of=self._handler_of,
            invoker=self._invoker,
            seats=self._seats,
            concurrency=self._limits.concurrency,
            stop=self._stop,
            report=self._report,
        )
        pressure = self._invoker.pressure
        load = pressure.take(claim.rows)
        try:
            async with self._invoker.alone if claim.alone else nullcontext():
                self._counts.add(await batch.run())
        finally:
            pressure.give(load)
        if batch.error is not None:
            raise batch.error

    def _handler_of(self, kind: str) -> Handler:
        handler = self._registry.find(kind)
        assert handler is not None, f"the store claimed kind {kind!r}, which was not asked for"
        return handler

    async def _claimable(self) -> list[str]:
        """The exact kinds to claim: what this tick wants of what has a handler.

        Patterns are looked up again once a second: a tick that goes on would never see a kind that is new.
        """
        if self._kinds is None or time.monotonic() > self._kinds_until:
            handled, wanted = self._registry.kinds, self._limits.wanted
            both = handled if wanted is None else handled & wanted
            there: Iterable[str] = ()
            if both.prefixes:
                self._kinds_until = time.monotonic() + _KINDS_EVERY
                there = await self._store.kinds(self._tenant)
            self._kinds = sorted(both.exact | {kind for kind in there if kind in both})
        return self._kinds

    async def _left(self, end: str) -> tuple[Oldest, int]:
        """What is still ready, and how many of these rows nobody here handles."""
        try:
            oldest = await self._store.oldest(self._tenant)
            if end != "empty" or not oldest.ready:
                return oldest, 0
            # All that we handle was claimed: what is ready is what we do not handle, or came in this very moment.
            unhandled = set(await self._store.kinds(self._tenant)) - set(self._kinds or ())
        except Exception as error:  # noqa: BLE001 - the tick's work is done; only figures are missing
            _log.warning("age of the oldest row unknown", tenant=self._tenant, error=error)
            return Oldest(), 0
        if new := self._registry.newly_missed(unhandled):
            _log.warning(
                "rows of kinds without a handler stay in the outbox; told once a kind",
                tenant=self._tenant,
                kinds=new[:_MOST_NAMED],
                more=max(0, len(new) - _MOST_NAMED),
            )
        return oldest, oldest.ready if unhandled else 0
