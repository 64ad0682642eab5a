"""The operator's own pieces against a cluster and behind sentinels: registered, followed, healed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.integration.bullmq.conftest import desired
from tests.integration.redis.conftest import Cluster, Sentinels, wait_for
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller.charge import Charge, Found, Outcome, Unreachable
from tickkeeper.controller.site import Site
from tickkeeper.schedules.desired import Every, Place
from tickkeeper.schedules.plan import State

WANTED = desired(schedule=Every(3_600_000, 777))
TAGGED = replace(WANTED, place=Place("{bull}", "ticks", "drain.acme"))


class Log:
    """What a site reported, newest last."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._more = asyncio.Event()

    def report(self, pairs: Any) -> None:
        self.outcomes.extend(outcome for _, outcome in pairs)
        self._more.set()

    async def until(self, holds: Callable[[Outcome], bool], seconds: float = 20.0) -> Outcome:
        """The next outcome for which ``holds``, counted from the last call."""
        async with asyncio.timeout(seconds):
            while True:
                while self.outcomes:
                    outcome = self.outcomes.pop(0)
                    if holds(outcome):
                        return outcome
                self._more.clear()
                await self._more.wait()


def healed(outcome: Outcome) -> bool:
    return isinstance(outcome, Found) and outcome.in_place and outcome.plan.state is State.MISSING


@asynccontextmanager
async def site(url: str, wanted: Any, **settings: Any) -> AsyncIterator[tuple[Site, Log]]:
    """A site with one charge; a sweep so slow that only the feed can explain a quick heal."""
    log = Log()
    made = Site(RedisSettings(url=url, **settings), report=log.report, sweep_seconds=60, max_len_events=99)
    task = asyncio.create_task(made.run())
    made.take(Charge(wanted))
    try:
        yield made, log
    finally:
        if task.done():
            task.result()  # it must not end by itself
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a13_a_cluster_with_a_hash_tag_works_and_heals_by_the_feed(cluster: Cluster) -> None:
    with cluster.node_of("{bull}:ticks:repeat").client() as node:
        node.flushall()
        async with site(cluster.url, TAGGED) as (made, log):
            await log.until(healed)
            assert node.zscore("{bull}:ticks:repeat", "drain.acme")
            await asyncio.to_thread(wait_for, lambda: made.feed.tracking, "the feed follows")
            before = node.zscore("{bull}:ticks:repeat", "drain.acme")
            node.zrem("{bull}:ticks:repeat", "drain.acme")
            await log.until(healed)
            assert node.zscore("{bull}:ticks:repeat", "drain.acme") == before


async def test_b11_a_slot_that_moves_is_followed(cluster: Cluster) -> None:
    wanted = replace(WANTED, place=Place("{moved}", "ticks", "drain.acme"))
    key = "{moved}:ticks:repeat"
    old = cluster.node_of(key)
    new = next(node for node in cluster.nodes if node is not old)
    async with site(cluster.url, wanted) as (made, log):
        await log.until(healed)
        await asyncio.to_thread(cluster.move_slot_of, key, new)
        with new.client() as node:
            before = node.zscore(key, "drain.acme")
            assert before is not None, "its keys moved along"
            at = ("127.0.0.1", new.port)
            await asyncio.to_thread(wait_for, lambda: made.feed.tracking and at in made.feed._feeds, "it has moved too")
            node.zrem(key, "drain.acme")
            await log.until(healed)
            assert node.zscore(key, "drain.acme") == before


async def test_a13_a_cluster_reached_as_a_single_server_says_what_it_is(cluster: Cluster) -> None:
    url = f"redis://127.0.0.1:{cluster.nodes[0].port}/0"
    async with site(url, WANTED) as (_, log):
        outcome = await log.until(lambda outcome: isinstance(outcome, Unreachable))
    assert isinstance(outcome, Unreachable)
    assert "redis+cluster://" in outcome.message


async def test_b2_a_sentinel_fail_over_is_followed(sentinels: Sentinels) -> None:
    async with site(sentinels.url, WANTED) as (made, log):
        await log.until(healed)
        with sentinels.master.client() as master, sentinels.replica.client() as replica:
            master.execute_command("WAIT", 1, 5000)
            sentinels.master.kill()
            await log.until(lambda outcome: isinstance(outcome, Unreachable))
            outcome = await log.until(lambda outcome: isinstance(outcome, Found) and outcome.in_place, seconds=40)
            assert isinstance(outcome, Found)
            assert replica.info("replication")["role"] == "master"
            await asyncio.to_thread(wait_for, lambda: made.feed.tracking and made.up, "the feed follows again")
            replica.flushall()
            await log.until(healed)
            assert replica.zscore("bull:ticks:repeat", "drain.acme")


async def test_b2_sentinels_that_are_frozen_are_told_in_time_and_used_again(sentinels: Sentinels) -> None:
    async with site(sentinels.url, WANTED) as (made, log):
        await log.until(healed)
        for process in sentinels.processes:
            process.freeze()
        with sentinels.master.client() as master:
            master.client_kill_filter(skipme=True, _type="normal")
            await log.until(lambda outcome: isinstance(outcome, Unreachable), seconds=5)
            master.flushall()
            for process in sentinels.processes:
                process.thaw()
            await log.until(healed)
            await asyncio.to_thread(wait_for, lambda: made.feed.tracking and made.up, "the feed follows again")


async def test_b2_one_sentinel_that_answers_is_enough(sentinels: Sentinels) -> None:
    for process in sentinels.processes[:2]:
        process.freeze()
    try:
        async with site(sentinels.url, WANTED) as (made, log):
            await log.until(healed)
            await asyncio.to_thread(wait_for, lambda: made.feed.tracking, "the feed follows too")
    finally:
        for process in sentinels.processes[:2]:
            process.thaw()


async def test_b2_a_fail_over_while_no_sentinel_is_there_is_followed_later(sentinels: Sentinels) -> None:
    async with site(sentinels.url, WANTED) as (made, log):
        await log.until(healed)
        with sentinels.master.client() as master:
            master.execute_command("WAIT", 1, 5000)
        for process in sentinels.processes:
            process.kill()
        sentinels.master.kill()
        await log.until(lambda outcome: isinstance(outcome, Unreachable), seconds=5)
        beat = made.last_beat
        await asyncio.to_thread(wait_for, lambda: made.last_beat > beat + 3, "it comes round meanwhile")
        for process in sentinels.processes:
            process.start()
        outcome = await log.until(lambda outcome: isinstance(outcome, Found) and outcome.in_place, seconds=40)
        assert isinstance(outcome, Found)
        with sentinels.replica.client() as replica:
            assert replica.info("replication")["role"] == "master"
            await asyncio.to_thread(wait_for, lambda: made.feed.tracking and made.up, "the feed follows again")
            replica.flushall()
            await log.until(healed)
