"""The worker behind sentinels and on a cluster, for real."""

import asyncio
from contextlib import ExitStack

import pytest

from embedded.proxy import Proxy
from tests.integration.redis.conftest import Cluster, Sentinels, cluster, sentinels
from tests.integration.worker.conftest import queue_of, schedule, until, working
from tests.unit.worker.fakes import FakeOutbox, row

__all__ = ["cluster", "sentinels"]  # fixtures

EMPTY = {"outcome": "empty"}
TAGGED = {"prefix": "{bull}"}


@pytest.fixture
def empty(cluster: Cluster) -> Cluster:
    """The cluster without keys."""
    for node in cluster.nodes:
        with node.client() as client:
            client.flushall()
    return cluster


async def test_a13_ticks_of_a_cluster_are_worked_one_at_a_time_and_on_time(empty: Cluster) -> None:
    store = FakeOutbox(row(1))
    async with (
        queue_of(empty.url, **TAGGED) as queue,
        working(empty.url, store, handlers={"mail.send": lambda row: None}, **TAGGED) as rig,
    ):
        await schedule(queue, 100)
        await until(lambda: store.acked == [1])
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 20, 20)
        assert rig.value("worker_errors_total", type="run_ended") == 0
        mean = rig.value("tick_lag_seconds_sum") / rig.value("tick_lag_seconds_count")
    # A stock worker is late by half a second on average here, and one without the bell by 50 ms.
    assert mean < 0.2
    with empty.node_of("{bull}:ticks:repeat").client() as node:
        assert node.keys("{bull}:ticks:tickkeeper:*") == []  # the running key was there, and went with its tick


async def test_a13_forbid_holds_on_a_cluster(empty: Cluster) -> None:
    from tests.integration.worker.test_overlap import _Endless, _Meter, _options, _tick_stamp

    meter = _Meter()
    async with (
        queue_of(empty.url, **TAGGED) as queue,
        working(empty.url, _Endless(), **_options(meter), **TAGGED) as rig,
    ):
        await schedule(queue, 100, data=_tick_stamp("Forbid"))
        await until(lambda: meter.total >= 2 and rig.value("ticks_total", outcome="overlap") >= 2, 20)
    assert meter.most == 1


async def test_b11_a_slot_that_moves_under_a_worker_is_followed(empty: Cluster) -> None:
    moved = {"prefix": "{worked}"}
    key = "{worked}:ticks:repeat"
    async with queue_of(empty.url, **moved) as queue, working(empty.url, **moved) as rig:
        await schedule(queue, 200)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 3)
        old = empty.node_of(key)
        empty.move_slot_of(key, next(node for node in empty.nodes if node is not old))
        before = rig.value("ticks_total", **EMPTY)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 5, 30)
        assert rig.runner.fault is None


async def test_a_cluster_node_that_hangs_is_noticed_and_waited_for(empty: Cluster) -> None:
    holder = empty.node_of("{bull}:ticks:repeat")
    async with queue_of(empty.url, **TAGGED) as queue, working(empty.url, **TAGGED) as rig:
        await schedule(queue, 200)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 3)
        holder.freeze()
        try:
            await until(lambda: rig.runner.fault, 20)
        finally:
            holder.thaw()
        before = rig.value("ticks_total", **EMPTY)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 3, 30)
        assert rig.runner.fault is None


async def test_a_fail_over_is_followed_by_the_worker(sentinels: Sentinels) -> None:
    async with queue_of(sentinels.url) as queue, working(sentinels.url) as rig:
        await schedule(queue, 200)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 3)
        sentinels.master.kill()
        await until(lambda: rig.runner.fault)
        before = rig.value("ticks_total", **EMPTY)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 3, 40)
        assert rig.runner.fault is None
    with sentinels.replica.client() as replica:
        assert replica.info("replication")["role"] == "master"


async def test_b2_the_master_is_killed_and_the_sentinels_cannot_be_reached_for_10_seconds(
    sentinels: Sentinels,
) -> None:
    """Nobody tells the worker who the master is; once it can ask again, it hears it and goes on."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(port)) for port in sentinels.ports]
        url = "redis+sentinel://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies) + "/mymaster/0"
        async with queue_of(sentinels.url) as queue, working(url) as rig:
            await schedule(queue, 200)
            await until(lambda: rig.value("ticks_total", **EMPTY) >= 3)
            for proxy in proxies:
                proxy.hold()
            sentinels.master.kill()
            await until(lambda: rig.runner.fault)
            await asyncio.sleep(10)  # the outage itself
            assert rig.runner.fault
            assert rig.value("worker_redis_up") == 0
            with sentinels.replica.client() as replica:  # the sentinels among themselves have long agreed
                await until(lambda: replica.info("replication")["role"] == "master", 40)
            before = rig.value("ticks_total", **EMPTY)
            for proxy in proxies:
                proxy.release()
            await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 3, 20)
            assert rig.runner.fault is None
            assert rig.value("worker_errors_total", type="run_ended") == 0
