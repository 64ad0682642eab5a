"""A Site's loop, its end above all."""

import asyncio
import gc
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest
import redis as redis_py

from tests.integration.bullmq.conftest import desired
from tickkeeper.bullmq.apply import Applier
from tickkeeper.bullmq.clients import RedisSettings, close, connect
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import Look, Observer
from tickkeeper.controller.charge import Charge, Found
from tickkeeper.controller.inspection import Inspection
from tickkeeper.controller.site import Site

#: Milliseconds after which a site is cancelled: while it connects, looks, writes, waits.
MOMENTS = [moment * 0.4 for moment in range(60)]


def cut(redis: redis_py.Redis) -> None:
    redis.client_kill_filter(skipme=True)


# Cancelled at the moment in which a connection is made, asyncio's open_connection may lose its socket (Python 3.11):
# nobody but the garbage collector can close it, and it must do so here, not within somebody else's test.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
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
    gc.collect()


async def test_an_edit_during_a_look_is_not_taken_for_registered(redis_url: str, redis: redis_py.Redis) -> None:
    client = connect(RedisSettings(url=redis_url), name="test")
    charge = Charge(desired())
    edited = replace(charge.desired, job_name="edited")

    class Edited(Observer):
        """Answers only when the resource has been edited meanwhile."""

        async def look(self, *arguments: Any, **named: Any) -> Look:
            found = await super().look(*arguments, **named)
            charge.desired, charge.digest = edited, None
            return found

    async def look(observer: Observer) -> list[Found]:
        inspection = Inspection(client, observer, Applier(client, max_len_events=100), lambda: True)
        return [found async for _, found in inspection.inspect([charge])]

    try:
        [first] = await look(Observer(client))
        assert first.in_place
        assert await look(Edited(client)) == [], "it was about the edition before"
        [last] = await look(Observer(client))
        assert last.mended
    finally:
        await close(client)
    key = f"{charge.queue.key('repeat')}:{edited.place.scheduler_id}"
    assert redis.hget(key, "name") == "edited"


async def test_what_is_lost_during_a_sweep_does_not_wait_for_the_rest_of_it(redis_url: str) -> None:
    client = connect(RedisSettings(url=redis_url), name="test")
    base = desired()
    slow = [Charge(replace(base, place=base.place._replace(queue=f"q{number}"))) for number in range(3)]
    lost = Charge(replace(base, place=base.place._replace(queue="lost")))
    order: list[str] = []
    asked: list[set[Charge]] = []

    class Noted(Observer):
        async def look(self, queue: QueueKey, *arguments: Any, **named: Any) -> Look:
            order.append(queue.queue)
            return await super().look(queue, *arguments, **named)

    def urgent(mended: AbstractSet[Charge]) -> list[Charge]:
        asked.append(set(mended))
        return [lost] if len(asked) == 1 else []

    try:
        inspection = Inspection(client, Noted(client), Applier(client, max_len_events=100), lambda: True)
        found = [(charge, outcome) async for charge, outcome in inspection.inspect([*slow, lost], urgent=urgent)]
    finally:
        await close(client)
    assert order[:4] == ["q0", "lost", "q1", "q2"], "and not looked at twice"
    assert asked[0] == {slow[0]}
    assert asked[1] == {slow[0], lost, slow[1]}
    assert [charge for charge, _ in found] == [slow[0], lost, slow[1], slow[2]]
    assert all(outcome.mended for _, outcome in found)
