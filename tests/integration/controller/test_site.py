"""A Site's loop, its end above all."""

import asyncio
from collections.abc import Callable

import pytest
import redis as redis_py

from tests.integration.bullmq.conftest import desired
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller.charge import Charge
from tickkeeper.controller.site import Site

#: Milliseconds after which a site is cancelled: while it connects, looks, writes, waits.
MOMENTS = [moment * 0.4 for moment in range(60)]


def cut(redis: redis_py.Redis) -> None:
    redis.client_kill_filter(skipme=True)


@pytest.mark.parametrize("fault", [None, cut], ids=["undisturbed", "while its connections break"])
async def test_a_site_that_is_cancelled_ends(
    redis_url: str, redis: redis_py.Redis, fault: Callable[[redis_py.Redis], None] | None
) -> None:
    # Python 3.11's wait_for may swallow a cancellation, and redis-py sends through it.
    for moment in MOMENTS:
        site = Site(RedisSettings(url=redis_url), report=lambda _: None, sweep_seconds=1, max_len_events=100)
        task = asyncio.create_task(site.run())
        site.take(Charge(desired()))
        await asyncio.sleep(moment / 1000)
        if fault is not None:
            fault(redis)
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=10)
        assert done, f"cancelled after {moment:.1f} ms, and still running"
        assert task.cancelled() or task.exception() is None
