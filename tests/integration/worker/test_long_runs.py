"""What shows only after very many ticks: a day of them in seconds, by a clock of the test's own."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from bullmq import Queue
from pydantic import SecretStr

from tests.integration.worker.conftest import queue_of
from tickkeeper.api.cron import next_fire_ms
from tickkeeper.bullmq.clients import RedisSettings, Use, close, connect
from tickkeeper.worker.consumer import Consumer
from tickkeeper.worker.runner import QueueOptions

DAY = 86_400_000
#: 24 h that end in the night of a daylight-saving change.
START = int(datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp() * 1000)
#: Redis trims a stream by whole nodes of so many entries.
NODE = 100


class Clock:
    """bullmq's idea of now, in ms."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = START
        fake = SimpleNamespace(time=lambda: self.now / 1000)
        for module in ("scripts", "job_scheduler", "job"):
            patch.setattr(f"bullmq.{module}.time", fake)


@asynccontextmanager
async def _taking(url: str) -> AsyncIterator[Consumer]:
    """Our consumer, which takes jobs only when it is told to."""
    settings = RedisSettings(url=SecretStr(url))

    async def never(job: Any, token: str) -> None:
        raise AssertionError

    consumer = Consumer(
        "ticks",
        never,
        commands=connect(settings),
        blocking=connect(settings, use=Use.BLOCKING),
        options=QueueOptions(worker_name="pod").for_bullmq(),
    )
    try:
        await consumer.prepare()
        yield consumer
    finally:
        await close(consumer.client)
        await close(consumer.bclient)


async def _work(consumer: Consumer, clock: Clock, redis: Any, until: int, late: Callable[[], int]) -> list[int]:
    """Take each tick so much after it is due, as long as it is due before ``until``; returns the slots taken."""
    slots = []
    while (due := int(redis.zscore("bull:ticks:repeat", "tick.acme"))) < until:
        clock.now = due + late()
        job = await consumer.moveToActive("token")
        slots.append(int(job.id.rpartition(":")[2]))
        assert await consumer.moveToActive("token") is None  # there is no second one
        clock.now += 1
        await job.moveToCompleted({}, "token")
    return slots


async def _schedule(queue: Queue, repeat: dict[str, Any]) -> None:
    await queue.upsertJobScheduler(
        "tick.acme", repeat, "tick", {"tenantId": "acme"}, {"removeOnComplete": {"count": 10}}
    )


async def test_d14_a_day_of_late_ticks_neither_drifts_nor_doubles(
    redis_url: str, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, chance = Clock(monkeypatch), random.Random(14)
    async with queue_of(redis_url) as queue, _taking(redis_url) as consumer:
        await _schedule(queue, {"every": 60_000, "offset": 12_345})
        slots = await _work(consumer, clock, redis, START + DAY, lambda: chance.randint(1, 9))
    first = next(slot for slot in range(START, START + 60_001) if slot % 60_000 == 12_345)
    # The scheduler's first tick is due at once; from then on each slot once, for 24 h.
    assert slots[-1440:] == list(range(first, first + DAY, 60_000))
    assert len(slots) in (1440, 1441)


async def test_d14_a_day_of_late_cron_ticks_fires_each_minute_once(
    redis_url: str, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, chance = Clock(monkeypatch), random.Random(14)
    pattern, zone = "*/2 * * * *", "Europe/Stockholm"
    async with queue_of(redis_url) as queue, _taking(redis_url) as consumer:
        await _schedule(queue, {"pattern": pattern, "tz": zone})
        slots = await _work(consumer, clock, redis, START + DAY, lambda: chance.randint(1, 9))
    assert len(slots) == len(set(slots))
    assert slots == [slot for slot in slots if slot % 120_000 == 0]
    expected, fire = [], slots[0]
    while fire < START + DAY:
        expected.append(fire)
        fire = next_fire_ms(pattern, zone, fire)
    assert slots == expected
    assert len(slots) in (719, 720)


async def test_a14_the_events_stream_stays_under_its_cap(
    redis_url: str, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts as 100,000 ticks without a cap would leave it, and is looked at after each of some hundreds more."""
    clock, cap, stream = Clock(monkeypatch), 200, "bull:ticks:events"
    async with queue_of(redis_url) as queue, _taking(redis_url) as consumer:
        await _schedule(queue, {"every": 1000})
        uncapped = redis.xlen(stream)
        await _work(consumer, clock, redis, START + 5000, lambda: 1)
        events_a_tick = (redis.xlen(stream) - uncapped) / 5
        assert events_a_tick >= 2
        redis.eval(
            "for n = 1, 200000 do redis.call('XADD', KEYS[1], '*', 'event', 'completed', 'jobId', 'j' .. n) end",
            1,
            stream,
        )
        assert redis.xlen(stream) > 200_000
        redis.hset("bull:ticks:meta", "opts.maxLenEvents", cap)  # as the operator does
        longest = []
        until = START + 5000
        for _ in range(300):
            until += 1000
            await _work(consumer, clock, redis, until, lambda: 1)
            longest.append(redis.xlen(stream))
        added = redis.xinfo_stream(stream)["entries-added"]
    # Half a dozen ticks cut it down, and it never grows again; with bullmq's own cap it would stand at 10,000.
    assert max(longest[10:]) <= cap + 2 * NODE
    assert added >= 200_000 + 300 * 2
