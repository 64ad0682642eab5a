"""The worker process: parts put together, probes, and an end in bounded time."""

import asyncio
import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable
from contextlib import suppress
from types import FrameType
from typing import Any

from redis.asyncio import Redis

from tickkeeper.bullmq.clients import Use, close, connect
from tickkeeper.outbox.mnemora import MnemoraOutbox
from tickkeeper.outbox.postgres import PostgresOutbox
from tickkeeper.outbox.sampler import OutboxSampler
from tickkeeper.outbox.store import OutboxStore
from tickkeeper.telemetry import logs
from tickkeeper.telemetry.http import Health, TelemetryServer
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.telemetry.outbox import OutboxGauges
from tickkeeper.telemetry.redaction import describe
from tickkeeper.worker import garbage
from tickkeeper.worker.handlers import HandlerError, Registry, load
from tickkeeper.worker.http_route import HttpDelivery
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.outcome import clean
from tickkeeper.worker.processor import Bench, TickProcessor
from tickkeeper.worker.routes import RoutesError, read_routes
from tickkeeper.worker.runner import QueueRunner
from tickkeeper.worker.sampling import HOLD, OutboxWatch, Schedules
from tickkeeper.worker.settings import WorkerSettings

_log = logs.get_logger(__name__)

_OUTBOX_AGAIN = 2.0
_OUTBOX_CHECK = 15.0
_LAST_STEPS = 1.0
#: What asyncio (3.11 to 3.14) says in run_until_complete when somebody called stop().
_LOOP_STOPPED = "Event loop stopped before Future completed."


def build_registry(settings: WorkerSettings, delivery: HttpDelivery) -> Registry:
    """Handlers of modules, entry points and routes. Raises HandlerError, RoutesError."""
    registry = Registry(load(settings.handlers))
    if settings.store == "mnemora" and (transactional := registry.transactional):
        raise HandlerError(f"{transactional[0]}: transaction=True is not to be had with TICKKEEPER_STORE=mnemora")
    for index, (route, secret) in enumerate(read_routes(settings.routes) if settings.routes else ()):
        try:
            registry.add(delivery.handler(route, secret))
        except HandlerError as error:
            raise RoutesError([f"routes.{index}.kinds: {error}"]) from None
    return registry


def build_store(settings: WorkerSettings) -> PostgresOutbox | MnemoraOutbox:
    """The outbox, not yet opened."""
    dsn = settings.database_url.get_secret_value()
    schema, connections = settings.schema_name, settings.database_connections
    if settings.store == "mnemora":
        return MnemoraOutbox(dsn, schema=schema, max_connections=connections)
    return PostgresOutbox(
        dsn,
        schema=schema,
        max_connections=connections,
        transaction_connections=settings.transaction_connections,
        dead_heads=settings.dead_heads,
    )


def build_sampler(settings: WorkerSettings) -> OutboxSampler | None:
    """What samples the outbox, not yet opened; mnemora's is not sampled."""
    if settings.store == "mnemora":
        return None
    return OutboxSampler(settings.database_url.get_secret_value(), schema=settings.schema_name, hold=HOLD)


class WorkerProcess:
    """Serves the queues until ``request_stop``; then ends within the grace period."""

    def __init__(
        self,
        settings: WorkerSettings,
        registry: Registry,
        *,
        store: OutboxStore,
        delivery: HttpDelivery,
        sampler: OutboxSampler | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._delivery = delivery
        self._registry = registry
        self._redis = settings.redis()
        self._stop = asyncio.Event()
        self._outbox_fault: str | None = "outbox: not reached yet"
        self.metrics = WorkerMetrics()
        invoker = Invoker(default_timeout=settings.handler_timeout_seconds, pressure=settings.pressure())
        self.metrics.abandoned.set_function(lambda: invoker.abandoned)
        self.metrics.rows_in_hand.set_function(lambda: invoker.pressure.held.rows)
        self._keys = self._connect(blocking=False)
        bench = Bench(
            store=store,
            registry=registry,
            invoker=invoker,
            metrics=self.metrics,
            redis=self._keys,
            limits=settings.limits(),
            default_tenant=settings.default_tenant,
            policy=settings.concurrency_policy,
            running_ttl=settings.running_ttl,
        )
        self._queues = [self._queue(name, bench) for name in settings.queue_names]
        self._sampler = sampler
        self.server = TelemetryServer(
            settings.http_host,
            settings.http_port,
            live=self._live,
            ready=self._ready,
            registry=self.metrics.registry,
        )

    def _queue(self, name: str, bench: Bench) -> tuple[QueueRunner, TickProcessor]:
        processor = TickProcessor(bench, prefix=self._settings.prefix, queue=name, slots=self._settings.concurrency)
        runner = QueueRunner(
            name,
            processor,
            connect=self._connect,
            options=self._settings.queue_options(),
            metrics=self.metrics,
        )
        return runner, processor

    def _connect(self, *, blocking: bool) -> Redis:
        return connect(self._redis, use=Use.BLOCKING if blocking else Use.COMMANDS)

    def request_stop(self) -> None:
        """Begin the end; call it on the loop."""
        self._stop.set()

    async def listen(self) -> None:
        """Serve the probes; before anything else starts. Raises OSError when their address is taken."""
        await self.server.start()

    async def run(self) -> None:
        """Work until told to stop."""
        host, port = self.server.address
        _log.info(
            "worker started",
            queues=list(self._settings.queue_names),
            prefix=self._settings.prefix,
            redis=str(self._redis.address),
            kinds=list(self._registry.kinds),
            probes=f"{host}:{port}",
        )
        if not len(self._registry):
            _log.warning("no handlers and no routes: ticks are taken, and no row is claimed")
        watching = [asyncio.create_task(self._watch_outbox(), name="outbox watch")]
        if self._sampler is not None:
            watching.append(asyncio.create_task(self._sampling(self._sampler).run(), name="outbox sampler"))
        for runner, _ in self._queues:
            runner.start()
        try:
            await self._stop.wait()
        finally:
            for task in watching:
                task.cancel()
            await self._end()

    async def _end(self) -> None:
        """Stop fetching; let handlers finish; then cut them and hand their rows back; then force what is left."""
        grace, began = self._settings.grace_seconds, time.monotonic()
        _log.info("stopping", grace_seconds=grace, ticks=sum(processor.running for _, processor in self._queues))
        for _, processor in self._queues:
            processor.stop()
        closing = [
            asyncio.create_task(runner.close(seconds=grace - min(2.0, grace * 0.2), busy=processor.busy))
            for runner, processor in self._queues
        ]
        _, late = await asyncio.wait(closing, timeout=grace - min(5.0, grace / 2))
        if late:
            for _, processor in self._queues:
                processor.cut()
            await asyncio.wait(late)
        left = max(_LAST_STEPS / 5, min(_LAST_STEPS, began + grace - _LAST_STEPS / 5 - time.monotonic()))
        steps = [close(self._keys), self._delivery.close(), self._store.close(), self.server.stop()]
        if self._sampler is not None:
            steps.append(self._sampler.close())
        await asyncio.gather(*(_briefly(step, left) for step in steps))
        _log.info("stopped", after_seconds=round(time.monotonic() - began, 2))

    def _sampling(self, sampler: OutboxSampler) -> OutboxWatch:
        settings = self._settings
        schedules = Schedules(self._keys, settings.prefix, settings.queue_names, settings.default_tenant)
        return OutboxWatch(sampler, OutboxGauges(self.metrics.registry), schedules)

    async def _watch_outbox(self) -> None:
        """Say once, in one line, what is wrong with the outbox; ticks fail meanwhile, and go on by themselves."""
        while True:
            try:
                await self._store.oldest("")
            except Exception as error:  # noqa: BLE001 - whatever it is, the worker waits
                fault = clean(describe(error))
                if fault != self._outbox_fault:
                    _log.error("outbox not usable; ticks fail until it is", error=fault)
                self._outbox_fault = fault
                await asyncio.sleep(_OUTBOX_AGAIN)
                continue
            if self._outbox_fault is not None:
                _log.info("outbox ready")
            self._outbox_fault = None
            await asyncio.sleep(_OUTBOX_CHECK)

    def _live(self) -> Health:
        # That this is answered at all says that the event loop turns. Redis and Postgres are no reason to be killed.
        dead = [name for name, (runner, _) in self._named() if not runner.alive]
        return Health(not dead, {f"queue {name}": "supervision ended" for name in dead})

    def _ready(self) -> Health:
        faults = {f"queue {name}": runner.fault for name, (runner, _) in self._named()} | {
            "outbox": self._outbox_fault,
            "process": "stopping" if self._stop.is_set() else None,
        }
        told = {name: fault for name, fault in faults.items() if fault is not None}
        return Health(not told, told)

    def _named(self) -> list[tuple[str, tuple[QueueRunner, TickProcessor]]]:
        return list(zip(self._settings.queue_names, self._queues, strict=True))


async def _briefly(step: Awaitable[Any], seconds: float) -> None:
    """A courtesy on the way out: connections end with the process in any case."""
    with suppress(Exception):
        async with asyncio.timeout(seconds):
            await step


def run(settings: WorkerSettings, registry: Registry, delivery: HttpDelivery) -> None:
    """Run the worker in this process until SIGTERM or SIGINT. Raises OSError when the probes' address is taken.

    Ends within the grace period whatever happens: also with a blocked event loop, a hung handler, Redis or Postgres
    away. A second signal ends it at once. Raises SystemExit where a handler took the event loop from under it.
    """
    garbage.spare()
    try:
        asyncio.run(_main(settings, registry, delivery))
    except asyncio.CancelledError:
        raise SystemExit(_taken_away("all tasks were cancelled")) from None
    except RuntimeError as error:
        if str(error) != _LOOP_STOPPED:
            raise
        raise SystemExit(_taken_away("the event loop was stopped")) from None
    finally:
        logging.shutdown()


def _taken_away(what: str) -> int:
    """A status for the process: whoever starts it again has a worker; the rows it held come back with their leases."""
    _log.critical("ended by code in this process, a handler's perhaps", cause=what)
    return 1


async def _main(settings: WorkerSettings, registry: Registry, delivery: HttpDelivery) -> None:
    store, sampler = build_store(settings), build_sampler(settings)
    process = WorkerProcess(settings, registry, store=store, delivery=delivery, sampler=sampler)
    await process.listen()
    _on_signals(process, asyncio.get_running_loop(), settings.grace_seconds)
    await store.open()
    if sampler is not None:
        await sampler.open()
    await process.run()
    # Bounded steps are over. What is left would only hold us up: closes that swallow cancellation, threads of
    # handlers and of name look-ups that nothing can stop.
    logging.shutdown()
    os._exit(0)


def _end_by_force(grace: float) -> None:
    """Say why, and where the event loop stands: a handler may block it. Not by the log, which may be stuck too."""
    with suppress(OSError, ValueError):
        os.write(2, f"tickkeeper: not ended within {grace:g} s of the signal, so by force; what runs:\n".encode())
        faulthandler.dump_traceback(2, all_threads=True)
    os._exit(1)


def _on_signals(process: WorkerProcess, loop: asyncio.AbstractEventLoop, grace: float) -> None:
    """Python's own signal handlers, not the loop's: they run, and set the last timer, when the loop is blocked too."""
    seen: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if seen:
            os._exit(128 + number)
        seen.append(number)
        last = threading.Timer(grace, _end_by_force, (grace,))
        last.daemon = True
        last.start()
        loop.call_soon_threadsafe(process.request_stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
