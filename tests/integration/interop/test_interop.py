"""Node and Python on one queue: each works what the other registered."""

import asyncio

from tests.integration.worker.conftest import queue_of, schedule, until, working
from tests.unit.worker.fakes import FakeOutbox, row

EMPTY = {"outcome": "empty"}
STAMPED = {
    "tenantId": "acme",
    "region": "eu",
    "tickkeeper": {
        "cluster": "c",
        "namespace": "apps",
        "name": "acme",
        "uid": "u-1",
        "generation": 3,
        "everyMs": 200,
        "concurrencyPolicy": "Forbid",
        "tick": {"batchSize": 7},
    },
}


def _slots(jobs):
    return [int(job["id"].rpartition(":")[2]) for job in jobs]


async def test_a_node_worker_works_ticks_that_python_registered(node_worker, redis_url, redis):
    with node_worker() as worker:
        async with queue_of(redis_url) as queue:
            await schedule(queue, 200, data=STAMPED, offset=50)
            await until(lambda: len(worker.ticks) >= 5, 20)
        ticks = worker.ticks
    assert {tick["name"] for tick in ticks} == {"tick"}
    # What the operator wrote, the ownership stamp included, is the same in every iteration that Node made.
    assert all(tick["data"] == STAMPED for tick in ticks)
    assert {slot % 200 for slot in _slots(ticks)} == {50}


async def test_our_worker_works_ticks_that_node_registered(driver, redis_url, redis):
    store = FakeOutbox(row(1))
    driver("start", "drain", 200)
    async with working(redis_url, store, handlers={"mail.send": lambda row: None}, default_tenant="acme") as rig:
        await until(lambda: store.acked == [1])
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 5)


async def test_p1_the_drivers_stop_silences_all_and_its_start_brings_the_ticks_back(driver, redis_url, redis):
    async with working(redis_url, default_tenant="acme") as rig:
        await asyncio.to_thread(driver, "start", "drain", 200)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 3)
        # Another replica leaves: it takes the clock from everybody.
        assert (await asyncio.to_thread(driver, "stop", "drain"))["removed"] is True
        assert redis.zscore("bull:ticks:repeat", "drain") is None
        assert rig.runner.fault is None  # and nobody is told
        await asyncio.to_thread(driver, "start", "drain", 200)
        before = rig.value("ticks_total", **EMPTY)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 3)
    assert driver("stop", "drain")["removed"] is True
    assert driver("stop", "drain")["removed"] is False


async def test_both_share_one_schedule_each_slot_once(node_worker, redis_url, redis):
    ours = []

    async def process(job, token):
        ours.append({"id": job.id, "data": job.data})
        return {}

    with node_worker() as worker:
        async with queue_of(redis_url) as queue, working(redis_url, process=process):
            for number in range(5):
                await schedule(queue, 100, scheduler=f"tick.{number}", data={"tenantId": f"t{number}"})
            await until(lambda: len(worker.ticks) >= 20 and len(ours) >= 20, 30)
        theirs = worker.ticks
    ids = [tick["id"] for tick in ours + theirs]
    assert len(set(ids)) == len(ids)
    assert {tick["data"]["tenantId"] for tick in ours} == {f"t{number}" for number in range(5)}


async def test_the_stamp_survives_iterations_by_both(node_worker, redis_url, redis, look):
    async with queue_of(redis_url) as queue:
        await schedule(queue, 200, data=STAMPED, offset=50)
        with node_worker() as worker:
            await until(lambda: len(worker.ticks) >= 3, 20)
        async with working(redis_url) as rig:
            await until(lambda: rig.value("ticks_total", **EMPTY) >= 3)
    [scheduler] = look()["schedulers"]
    assert (scheduler["key"], scheduler["name"]) == ("tick.acme", "tick")
    assert (scheduler["every"], scheduler["offset"]) == (200, 50)
    assert scheduler["template"]["data"] == STAMPED


async def test_node_reads_our_results_and_our_failures(redis_url, redis, look):
    store = FakeOutbox(row(1))
    async with queue_of(redis_url) as queue, working(redis_url, store, handlers={"mail.send": lambda row: None}):
        await queue.add("tick", {"tenantId": "acme"})
        await queue.add("tick", {})
        await until(lambda: redis.zcard("bull:ticks:completed") and redis.zcard("bull:ticks:failed"))
    seen = look()
    assert seen["completed"][0]["returnvalue"]["done"] == 1
    assert seen["completed"][0]["returnvalue"]["tenantId"] == "acme"
    assert seen["failed"][0]["failedReason"] == "not a tick: tenantId: Field required"
