"""A worker in this process, on a real Redis, with an outbox in memory whose faults can be arranged."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from bullmq import Queue
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from tests.unit.worker.fakes import FakeOutbox
from tickkeeper.bullmq.clients import RedisSettings, Use, close, connect
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.worker.handlers import Kinds, Registry, as_handler
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.limits import Limits
from tickkeeper.worker.processor import Bench, TickProcessor
from tickkeeper.worker.runner import QueueOptions, QueueRunner

TEMPLATE = {"removeOnComplete": {"count": 1000}, "removeOnFail": {"count": 1000}}


class Rig:
    """One worker, of queue ``ticks`` unless said otherwise, and what a test looks at."""

    def __init__(self, url: str, store: Any, handlers: dict[str, Callable[..., Any]], options: dict[str, Any]) -> None:
        self.settings = RedisSettings(url=SecretStr(url))
        self.store = store
        self.metrics = WorkerMetrics(CollectorRegistry())
        self.redis = connect(self.settings)
        bench = Bench(
            store=store,
            registry=Registry(as_handler(call, Kinds.of(kind)) for kind, call in handlers.items()),
            invoker=Invoker(default_timeout=30, cleanup_seconds=0.2),
            metrics=self.metrics,
            redis=self.redis,
            limits=options.pop("limits", Limits()),
            default_tenant=options.pop("default_tenant", None),
            policy=options.pop("policy", "Forbid"),
            running_ttl=options.pop("running_ttl", 30.0),
        )
        self.queue = options.pop("queue", "ticks")
        self.processor = TickProcessor(
            bench, prefix=options.get("prefix", "bull"), queue=self.queue, slots=options.get("concurrency", 1)
        )
        self.runner = QueueRunner(
            self.queue,
            options.pop("process", self.processor),
            connect=lambda *, blocking: connect(self.settings, use=Use.BLOCKING if blocking else Use.COMMANDS),
            options=QueueOptions(**{"worker_name": "pod-1", **options}),
            metrics=self.metrics,
        )

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"tickkeeper_{name}", {"queue": self.queue, **labels}) or 0.0

    async def ready(self) -> None:
        await until(lambda: self.runner.fault is None, 15)

    async def idle(self) -> None:
        """Wait until all that it does is wait for a job: bullmq starts with as many fetches as it has slots."""

        def waits_only() -> bool:
            consumer = self.runner._consumer
            return consumer is not None and consumer.waiting is not None and len(consumer.processing) == 1

        await until(waits_only)


Work = Callable[..., AbstractAsyncContextManager[Rig]]


@asynccontextmanager
async def working(url: str, store: Any = None, **options: Any) -> AsyncIterator[Rig]:
    """A running worker; ``handlers`` by kind."""
    rig = Rig(url, store if store is not None else FakeOutbox(), options.pop("handlers", {}), options)
    rig.runner.start()
    try:
        yield rig
    finally:
        rig.processor.cut()
        await rig.runner.close(seconds=5, busy=rig.processor.busy)
        await close(rig.redis)


@asynccontextmanager
async def queue_of(url: str, name: str = "ticks", *, prefix: str = "bull") -> AsyncIterator[Queue]:
    """bullmq's own Queue."""
    client = connect(RedisSettings(url=SecretStr(url)))
    queue = Queue(name, {"connection": client, "prefix": prefix})
    try:
        yield queue
    finally:
        await close(client)


async def schedule(queue: Queue, every: int, *, scheduler: str = "tick.acme", data: Any = None, **repeat: Any) -> None:
    """Register as an application or the operator does."""
    await queue.upsertJobScheduler(
        scheduler,
        {"every": every, **repeat},
        "tick",
        {"tenantId": "acme"} if data is None else data,
        TEMPLATE,
    )


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until something holds; it may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            held = condition()
            if isinstance(held, Awaitable):
                held = await held
            if held:
                return
            await asyncio.sleep(0.005)


@pytest.fixture
def work(redis_url: str) -> Work:
    """``working`` on the session's Redis."""
    return lambda *args, **options: working(redis_url, *args, **options)


@pytest.fixture
async def ticks(redis_url: str) -> AsyncIterator[Queue]:
    """Queue ``ticks`` on the session's Redis."""
    async with queue_of(redis_url) as queue:
        yield queue


@pytest.fixture(autouse=True)
def _own_garbage():
    """What a test left open is reported with that test, not with a later one."""
    yield
    import gc

    gc.collect()
