"""One tick: drain one tenant's outbox until it is empty or the time budget is used."""

import time
from contextlib import nullcontext

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from tickkeeper.outbox.store import Claim, Oldest, OutboxStore, Row
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.worker.batch import Batch, Counts
from tickkeeper.worker.handlers import Handler, Registry
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.lease import Lease
from tickkeeper.worker.limits import Limits, ended
from tickkeeper.worker.outcome import Fate, Verdict
from tickkeeper.worker.stop import Stop

_log = get_logger(__name__)


class TickResult(BaseModel):
    """What a tick did: the BullMQ job's return value, as camelCase JSON.

    ``claimed`` = done + retried + dead + snoozed + released + fenced, but for rows that went to the dead letters
    without a handler (``dead`` counts them too). ``fenced``: no longer ours when their outcome was to be written.
    ``unsupported``: ready rows of kinds that no handler here takes; they stay where they are. ``oldestAgeSeconds``:
    age of the oldest row still ready. ``ended``: empty, budget, shutdown, lost (the running key), or skipped.
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
) -> TickResult:
    """Claim and handle batches of one tenant until none is left, the budget is used, or ``stop`` says so.

    Rows whose handler fails do not fail the tick. Raises StoreUnavailable or SchemaError when the outbox cannot
    be read or written; rows whose outcome was not written come back after their lease.
    """
    drained = _Drain(store, tenant_id, registry, invoker, limits or Limits(), stop or Stop(), metrics)
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
    ) -> None:
        self._store = store
        self._tenant = tenant_id
        self._registry = registry
        self._invoker = invoker
        self._limits = limits
        self._lease = limits.lease or store.default_lease
        self._stop = stop
        self._metrics = metrics
        self._counts = Counts()
        self._kinds: list[str] | None = None

    async def run(self) -> TickResult:
        began = time.monotonic()
        empty = False
        while not (
            end := ended(
                stop_reason=self._stop.reason,
                elapsed=time.monotonic() - began,
                budget=self._limits.budget,
                empty=empty,
            )
        ):
            empty = await self._one_batch()
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

    async def _one_batch(self) -> bool:
        """Claim and work one batch; True when there was nothing to claim."""
        kinds = await self._claimable()
        if not kinds:
            return True
        since = time.monotonic()
        claim = await self._store.claim(self._tenant, kinds=kinds, limit=self._limits.batch_size, lease=self._lease)
        self._counts.dead += claim.buried
        if not claim.rows:
            return not claim.buried
        if claim.alone and self._invoker.alone.locked():
            await self._wait_for_turn(claim)
            return False
        lease = Lease(self._store, claim.lease_id, self._lease, since=since, clock=time.monotonic)
        batch = Batch(
            self._store,
            claim.rows,
            lease,
            invoke=self._invoke,
            concurrency=self._limits.concurrency,
            stop=self._stop,
            observe=self._observe,
        )
        async with self._invoker.alone if claim.alone else nullcontext():
            counts = await batch.run()
        self._counts.add(counts)
        if self._metrics and counts.fenced:
            self._metrics.rows_fenced.inc(counts.fenced)
        if batch.error is not None:
            raise batch.error
        return False

    async def _wait_for_turn(self, claim: Claim) -> None:
        """Two rows that may kill their worker, or are on their last attempt, do not share one process at a time.

        The later one goes back unharmed: a claimed row that waits would share the fate of the one that runs.
        """
        await self._store.release(claim.lease_id, [row.id for row in claim.rows])
        async with self._invoker.alone:
            pass

    async def _claimable(self) -> list[str]:
        """The exact kinds to claim: what this tick wants of what has a handler. Patterns are looked up once a tick."""
        if self._kinds is None:
            handled, wanted = self._registry.kinds, self._limits.wanted
            both = handled if wanted is None else handled & wanted
            there = await self._store.kinds(self._tenant) if both.prefixes else ()
            self._kinds = sorted(both.exact | {kind for kind in there if kind in both})
        return self._kinds

    async def _invoke(self, row: Row) -> Verdict:
        handler = self._registry.find(row.kind)
        assert handler is not None, f"the store claimed kind {row.kind!r}, which was not asked for"
        began = time.monotonic()
        verdict = await self._invoker(handler, row)
        if self._metrics:
            self._metrics.handler_seconds.labels(_label(handler, row)).observe(time.monotonic() - began)
        if verdict.fate in (Fate.RETRIED, Fate.DEAD):
            _log.warning(
                "row failed",
                tenant=row.tenant_id,
                kind=row.kind,
                row=str(row.id),
                attempt=row.attempts,
                attempts=row.max_attempts,
                # The store buries a row whose last attempt this was.
                outcome=(Fate.DEAD if row.attempts >= row.max_attempts else verdict.fate).value,
                error=verdict.error,
            )
        return verdict

    def _observe(self, row: Row, fate: Fate) -> None:
        handler = self._registry.find(row.kind)
        if self._metrics and handler is not None:
            self._metrics.rows.labels(_label(handler, row), fate.value).inc()

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
        if unhandled:
            _log.debug("rows of kinds without a handler", tenant=self._tenant, kinds=sorted(unhandled)[:20])
        return oldest, oldest.ready if unhandled else 0


def _label(handler: Handler, row: Row) -> str:
    """The kind as a metric label: a pattern stays a pattern, so that labels are bounded."""
    if row.kind in handler.kinds.exact:
        return row.kind
    fitting = [prefix for prefix in handler.kinds.prefixes if row.kind.startswith(prefix)]
    return f"{max(fitting, key=len)}*" if fitting else "?"
