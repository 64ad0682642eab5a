"""From a BullMQ job to a tick: read its data, keep one tick of a schedule at a time, drain, report."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from bullmq import Job, UnrecoverableError
from pydantic import ValidationError
from redis.asyncio import Redis

from tickkeeper.api.tick import TickData, TickOptions
from tickkeeper.outbox.store import OutboxStore
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.telemetry.redaction import describe
from tickkeeper.worker.handlers import Registry
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.limits import Limits, limits_of
from tickkeeper.worker.outcome import clean
from tickkeeper.worker.overlap import Running, running_key
from tickkeeper.worker.stop import Stop
from tickkeeper.worker.tick import TickResult, drain, never

# A cancelled tick may take this long to cut its handlers and hand its rows back.
_HAND_BACK = 4.0


class TickFailed(Exception):
    """The tick could not be worked; the text is shown in BullMQ's tools and carries no credential."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What ticks of one process share."""

    store: OutboxStore
    registry: Registry
    invoker: Invoker
    metrics: WorkerMetrics
    #: for the running keys; None when ``policy`` Allow is all that is ever wanted
    redis: Redis
    limits: Limits = field(default_factory=Limits)
    default_tenant: str | None = None
    #: for ticks that carry no policy of their own
    policy: Literal["Forbid", "Allow"] = "Forbid"
    running_ttl: float = 30.0


class TickProcessor:
    """bullmq's processor for one queue, of which ``slots`` run at once. ``stop`` and ``cut`` end the ticks that run."""

    def __init__(self, bench: Bench, *, prefix: str, queue: str, slots: int = 1) -> None:
        self._bench = bench
        self._slots = slots
        self._prefix = prefix
        self._queue = queue
        self._stops: set[Stop] = set()
        self._stopping = False

    @property
    def running(self) -> int:
        """Ticks that run now."""
        return len(self._stops)

    def busy(self) -> bool:
        """Whether a tick runs now."""
        return bool(self._stops)

    def stop(self) -> None:
        """Start nothing new: ticks end when their running handlers have."""
        self._stopping = True
        for each in self._stops:
            each.soft("shutdown")

    def cut(self) -> None:
        """Cut handlers and hand their rows back."""
        self._stopping = True
        for each in self._stops:
            each.hard("shutdown")

    async def __call__(self, job: Job, _token: str) -> dict[str, Any]:
        """The tick's result, as JSON. Raises TickFailed, or UnrecoverableError for a job that is no tick."""
        metrics, began = self._bench.metrics, time.monotonic()
        metrics.tick_lag_seconds.labels(self._queue).observe(max(0.0, time.time() - due_seconds(job)))
        try:
            result = await self._tick(job)
        except UnrecoverableError:
            metrics.ticks.labels(self._queue, "invalid").inc()
            raise
        except Exception as error:  # noqa: BLE001 - raised again, in words
            metrics.ticks.labels(self._queue, "failed").inc()
            metrics.tick_seconds.labels(self._queue).observe(time.monotonic() - began)
            raise TickFailed(clean(describe(error))) from None
        metrics.ticks.labels(self._queue, result.skipped or result.ended).inc()
        if not result.skipped:
            metrics.tick_seconds.labels(self._queue).observe(time.monotonic() - began)
        return result.model_dump(mode="json", by_alias=True)

    async def _tick(self, job: Job) -> TickResult:
        bench = self._bench
        data, limits = read(job, default_tenant=bench.default_tenant, defaults=bench.limits)
        policy = data.tickkeeper.concurrency_policy if data.tickkeeper else bench.policy
        async with self._stoppable() as stop:
            if policy == "Allow" or not job.repeatJobKey:
                return await self._drain(data.tenant_id, limits, stop)
            key = running_key(self._prefix, self._queue, job.repeatJobKey)
            running = Running(bench.redis, key, ttl=bench.running_ttl)
            if not await running.acquire():
                return TickResult(tenant_id=data.tenant_id, ended="skipped", skipped="overlap")
            holding = asyncio.create_task(running.hold(), name="running key")
            holding.add_done_callback(lambda _task: stop.soft("lost"))
            try:
                # Its successors are skipped meanwhile: what it leaves would wait for the slot after.
                goes_on = never if limits.firm else self._has_slots_free
                return await self._drain(data.tenant_id, limits, stop, goes_on)
            finally:
                holding.cancel()
                await asyncio.shield(running.release())

    def _has_slots_free(self) -> bool:
        """Then no tick waits for one of ours."""
        return self.running < self._slots

    async def _drain(
        self, tenant_id: str, limits: Limits, stop: Stop, goes_on: Callable[[], bool] = never
    ) -> TickResult:
        bench = self._bench
        task = asyncio.create_task(
            drain(
                bench.store,
                tenant_id,
                bench.registry,
                invoker=bench.invoker,
                limits=limits,
                stop=stop,
                metrics=bench.metrics,
                goes_on=goes_on,
            ),
            name=f"drain {tenant_id}",
        )
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # A forced close, or a sibling that ended run(): rows go back before this job is let go.
            stop.hard("shutdown")
            await asyncio.wait({task}, timeout=_HAND_BACK)
            task.cancel()
            raise

    @asynccontextmanager
    async def _stoppable(self) -> AsyncIterator[Stop]:
        stop = Stop()
        if self._stopping:
            stop.soft("shutdown")
        self._stops.add(stop)
        try:
            yield stop
        finally:
            self._stops.discard(stop)


def read(job: Job, *, default_tenant: str | None, defaults: Limits) -> tuple[TickData, Limits]:
    """A job's tick data and bounds. Raises UnrecoverableError: trying again would read the same."""
    try:
        data = TickData.parse(job.data, default_tenant=default_tenant)
        stamp = data.tickkeeper
        repeat = (job.opts or {}).get("repeat") or {}
        every = stamp.every_ms if stamp else repeat.get("every")
        limits = limits_of(
            stamp.tick if stamp else TickOptions(),
            every_ms=every if isinstance(every, int) else None,
            defaults=defaults,
        )
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'data'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False, include_context=False)
        )
        raise UnrecoverableError(clean(f"not a tick: {faults}")) from None
    except ValueError as error:
        raise UnrecoverableError(clean(f"not a tick: {error}")) from None
    return data, limits


def due_seconds(job: Job) -> float:
    """When a job was due, in seconds since the epoch: a scheduler's slot is in its id."""
    slot = str(job.id or "").rpartition(":")[2] if job.repeatJobKey else ""
    if slot.isascii() and slot.isdigit():
        return int(slot) / 1000
    return (int(job.timestamp or 0) + int(job.delay or 0)) / 1000
