"""A worker's process samples the outbox that it works."""

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
import psycopg
import pytest

from tickkeeper.outbox import enqueue_sync
from tickkeeper.worker import process as process_module
from tickkeeper.worker.handlers import Registry
from tickkeeper.worker.http_route import HttpDelivery
from tickkeeper.worker.process import WorkerProcess, build_sampler, build_store
from tickkeeper.worker.sampling import OutboxWatch
from tickkeeper.worker.settings import WorkerSettings

if TYPE_CHECKING:
    import redis as redis_py


async def test_its_metrics_tell_of_the_outbox(
    dsn: str, redis_url: str, redis: "redis_py.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "OutboxWatch", partial(OutboxWatch, period=1.0))
    with psycopg.connect(dsn) as producer:
        enqueue_sync(producer, "acme", "mail", 1)
        enqueue_sync(producer, "forgotten", "mail", 1)
    redis.zadd("bull:ticks:repeat", {"s": 1})
    redis.hset("bull:ticks:repeat:s", mapping={"data": json.dumps({"tenantId": "acme"})})
    settings = WorkerSettings(redis_url=redis_url, database_url=dsn, http_port=0, grace_seconds=5)  # type: ignore[arg-type]
    store, sampler = build_store(settings), build_sampler(settings)
    assert sampler is not None
    process = WorkerProcess(settings, Registry([]), store=store, delivery=HttpDelivery(), sampler=sampler)
    await process.listen()
    host, port = process.server.address
    await store.open()
    await sampler.open()
    running = asyncio.create_task(process.run())
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as client:
            text = ""
            while "tickkeeper_outbox_tenants_without_schedule 1.0" not in text:
                await asyncio.sleep(0.1)
                async with client.get(f"http://{host}:{port}/metrics") as response:
                    text = await response.text()
        assert 'tickkeeper_outbox_rows{state="ready"} 2.0' in text
    finally:
        process.request_stop()
        async with asyncio.timeout(30):
            await running


def test_mnemoras_outbox_is_not_sampled(redis_url: str) -> None:
    settings = WorkerSettings(redis_url=redis_url, database_url="postgresql://x", store="mnemora")  # type: ignore[arg-type]
    assert build_sampler(settings) is None
