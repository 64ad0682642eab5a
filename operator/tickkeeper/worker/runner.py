"""One queue's consumer, kept alive: built, watched, replaced when its run() ends, closed in bounded time."""

import asyncio
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from tickkeeper.bullmq.clients import close
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.worker.consumer import Consumer, Process
from tickkeeper.worker.contact import Contact
from tickkeeper.worker.listeners import attach

_log = get_logger(__name__)

_RETRY = 0.2
_FORCE_SECONDS = 1.0
# Closing an idle consumer takes milliseconds, unless Redis is away.
_IDLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """bullmq's settings for one queue; times in milliseconds, retention in seconds and jobs.

    Retention is for jobs whose template says none (an application's own scheduler): BullMQ keeps those for ever.
    """

    prefix: str = "bull"
    concurrency: int = 10
    lock_duration_ms: int = 30_000
    lock_renew_ms: int = 15_000
    stalled_interval_ms: int = 30_000
    max_stalled_count: int = 1
    worker_name: str | None = None
    keep_completed: tuple[int, int] = (100, 86_400)
    keep_failed: tuple[int, int] = (1_000, 604_800)

    def for_bullmq(self) -> dict[str, Any]:
        """As bullmq's Worker takes them."""
        return {
            "prefix": self.prefix,
            "concurrency": self.concurrency,
            "lockDuration": self.lock_duration_ms,
            "lockRenewTime": self.lock_renew_ms,
            "stalledInterval": self.stalled_interval_ms,
            "maxStalledCount": self.max_stalled_count,
            # bullmq's own 15 s would make a short outage of Redis a long one of ticks.
            "runRetryDelay": int(_RETRY * 1000),
            "name": self.worker_name,
            "removeOnComplete": {"count": self.keep_completed[0], "age": self.keep_completed[1]},
            "removeOnFail": {"count": self.keep_failed[0], "age": self.keep_failed[1]},
        }


#: Seconds by which clocks may differ before somebody is told.
_SKEW = 1.0


class QueueRunner:
    """Serves one queue until ``close``."""

    def __init__(
        self,
        queue: str,
        process: Process,
        *,
        connect: Callable[..., Redis],
        options: QueueOptions,
        metrics: WorkerMetrics,
    ) -> None:
        self._queue = queue
        self._process = process
        self._connect = connect
        self._options = options
        self._metrics = metrics
        self._contact = Contact(queue, metrics)
        self._consumer: Consumer | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def fault(self) -> str | None:
        """Why the queue is not being served; None when it is."""
        if self._consumer is None or not self._consumer.running:
            return self._contact.fault or "starting"
        return self._contact.fault

    @property
    def alive(self) -> bool:
        """False once the supervision itself has ended without being told to."""
        return self._task is None or not self._task.done() or self._closing.is_set()

    def start(self) -> None:
        """Begin to serve; never waits for Redis."""
        _quiet_bullmq()
        self._task = asyncio.create_task(self._supervise(), name=f"queue {self._queue}")

    async def _supervise(self) -> None:
        while not self._closing.is_set():
            consumer = self._build()
            try:
                await self._serve(consumer)
            finally:
                if not consumer.closing:
                    await _discard(consumer)
            if not self._closing.is_set():
                await self._pause()

    async def _serve(self, consumer: Consumer) -> None:
        """Run one consumer to its end, and say what ended it."""
        if not await self._prepared(consumer):
            return
        self._consumer = consumer
        # A task of its own: a cancellation that leaks out of run() is not ours.
        running = asyncio.create_task(consumer.run(), name=f"bullmq {self._queue}")
        try:
            await asyncio.wait({running})
        finally:
            running.cancel()
        if self._closing.is_set():
            return
        cause = "cancelled from within" if running.cancelled() else running.exception()
        self._metrics.errors.labels(self._queue, "run_ended").inc()
        _log.error("consumer ended; starting a new one", queue=self._queue, cause=cause)

    async def _prepared(self, consumer: Consumer) -> bool:
        """Wait until Redis answers; False when the end came first. One consumer for all tries: building it is work."""
        while not self._closing.is_set():
            try:
                policy, skew = await consumer.prepare(), await consumer.skew()
            except Exception as error:  # noqa: BLE001 - whatever keeps us from starting is tried again
                self._contact.note(error)
                await self._pause()
                continue
            self._contact.note(None)
            if policy not in ("noeviction", "unknown"):
                _log.warning(
                    "redis may drop ticks: maxmemory-policy is not noeviction", queue=self._queue, policy=policy
                )
            if abs(skew) > _SKEW:
                # bullmq goes by the worker's clock: behind, it takes up nothing; ahead, it puts the next ticks far off.
                _log.warning(
                    "this machine's clock and that of redis differ: ticks come late, or not at all",
                    queue=self._queue,
                    ahead_seconds=round(skew, 1),
                )
            return True
        return False

    async def _pause(self) -> None:
        """Until the next try, or until the end. Not wait_for: on Python 3.11 it may swallow a cancellation."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY):
                await self._closing.wait()

    def _build(self) -> Consumer:
        consumer = Consumer(
            self._queue,
            self._process,
            commands=self._connect(blocking=False),
            blocking=self._connect(blocking=True),
            options=self._options.for_bullmq(),
            on_contact=self._contact.note,
        )
        attach(consumer, self._queue, self._metrics)
        # While every slot is taken nothing is fetched, and the renewals are what says that Redis answers.
        consumer.on("locksRenewed", lambda _renewed: self._contact.note(None))
        return consumer

    async def close(self, *, seconds: float, busy: Callable[[], bool] = lambda: True) -> None:
        """Stop fetching, wait for jobs that run, close; after ``seconds`` by force. Takes two seconds more at most.

        ``busy`` False means that no job runs: then only a Redis that is away can hold it up, and that is not waited
        for. ``Worker.close`` swallows cancellation, so it is never cancelled.
        """
        self._closing.set()
        consumer = self._consumer
        if consumer is not None and consumer.running:
            if not await self._close_gently(consumer, seconds, busy):
                _log.warning("closed by force", queue=self._queue, jobs=len(consumer.jobs))
                await _discard(consumer)
            else:
                await self._pass_on(consumer.keys["marker"])
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_FORCE_SECONDS)
        if consumer is not None:
            await consumer.hang_up()

    @staticmethod
    async def _close_gently(consumer: Consumer, seconds: float, busy: Callable[[], bool]) -> bool:
        closing = asyncio.create_task(consumer.close())
        began = time.monotonic()
        while not closing.done():
            left = (seconds if busy() else min(seconds, _IDLE_SECONDS)) - (time.monotonic() - began)
            if left <= 0:
                return False
            await asyncio.wait({closing}, timeout=min(left, _RETRY))
        return True

    async def _pass_on(self, marker: str) -> None:
        """Wake another worker: a wait or a fetch that ended may have taken the queue's only marker with it."""
        client = self._connect(blocking=False)
        try:
            async with asyncio.timeout(_FORCE_SECONDS):
                await client.zadd(marker, {"0": 0})
        except Exception as error:  # noqa: BLE001 - others look by themselves within seconds
            _log.debug("marker not passed on", queue=self._queue, error=error)
        finally:
            with suppress(Exception):
                await close(client)


async def _discard(consumer: Consumer) -> None:
    """Close a consumer by force, in bounded time."""
    closing = asyncio.create_task(consumer.close(force=True))
    await asyncio.wait({closing}, timeout=_FORCE_SECONDS)
    await consumer.hang_up()


def _quiet_bullmq() -> None:
    """The eviction policy is told once, by a log line and by the operator's condition, not by a Python warning."""
    warnings.filterwarnings("ignore", message="IMPORTANT! Eviction policy", module="bullmq")
