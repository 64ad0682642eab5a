"""Several workers' samplers on one database: one of them shows what there is."""

import asyncio
import json
from typing import TYPE_CHECKING

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from tickkeeper.outbox import NewRow, enqueue_many_sync
from tickkeeper.outbox.sampler import OutboxSampler
from tickkeeper.telemetry.outbox import OutboxGauges
from tickkeeper.worker import sampling
from tickkeeper.worker.sampling import OutboxWatch, Schedules

if TYPE_CHECKING:
    import redis as redis_py

PERIOD = 2.0


class Worker:
    """A worker's sampler and gauges."""

    def __init__(self, dsn: str, client: Redis) -> None:
        self.registry = CollectorRegistry()
        self.sampler = OutboxSampler(dsn, hold=0.5)
        schedules = Schedules(client, "bull", ("ticks",))
        self.watch = OutboxWatch(self.sampler, OutboxGauges(self.registry), schedules, period=PERIOD)

    def told(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"tickkeeper_outbox_{name}", labels)

    @property
    def shows(self) -> bool:
        return self.told("rows", state="ready") is not None

    @property
    def turns(self) -> tuple[float, float]:
        """Taken, and seen taken by another."""
        taken, elsewhere = (self.told("samples_total", outcome=outcome) for outcome in ("taken", "elsewhere"))
        return taken or 0.0, elsewhere or 0.0


def settled(workers: list[Worker]) -> bool:
    """All have asked a few times, and one has the samples."""
    return all(sum(worker.turns) >= 3 for worker in workers) and sum(worker.shows for worker in workers) == 1


async def test_one_worker_of_several_takes_the_samples(
    dsn: str, redis_url: str, redis: "redis_py.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_OTHERS_FROM", 0.2)
    monkeypatch.setattr(sampling, "_OTHERS_TO", 0.3)
    with psycopg.connect(dsn) as producer:
        enqueue_many_sync(producer, [NewRow("acme", "mail", 1), NewRow("forgotten", "mail", 1)])
    redis.zadd("bull:ticks:repeat", {"s": 1})
    redis.hset("bull:ticks:repeat:s", mapping={"data": json.dumps({"tenantId": "acme"})})
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        workers = [Worker(dsn, client) for _ in range(3)]
        for worker in workers:
            await worker.sampler.open()
        running = [asyncio.create_task(worker.watch.run()) for worker in workers]
        async with asyncio.timeout(60):
            # Not at any one moment: on a machine that stands still, two may have had a turn in one slot.
            while not settled(workers):  # noqa: ASYNC110 - a counter has no event
                await asyncio.sleep(0.05)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        (ours,) = [worker for worker in workers if worker.shows]
        assert ours.told("rows", state="ready") == 2
        assert ours.told("tenants_without_schedule") == 1
        for worker in workers:
            await worker.sampler.close()
