"""What goes wrong around a tick, and how the worker goes on."""

import asyncio
import time
from contextlib import suppress

import pytest
from bullmq import Worker
from bullmq.backends import RedisBackend
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from embedded.proxy import Proxy
from embedded.redis import Redis
from tests.integration.worker.conftest import queue_of, schedule, until, working
from tests.unit.worker.fakes import FakeOutbox, row
from tickkeeper.outbox.store import SchemaError, StoreUnavailable

EMPTY = {"outcome": "empty"}


async def test_a16_a_handler_that_raises_cancelled_error_stops_nothing(work, ticks):
    store = FakeOutbox(row(1), row(2, kind="mail.other"))

    async def cancelled(row):
        raise asyncio.CancelledError

    with capture_logs() as logs:
        async with work(store, handlers={"mail.send": cancelled, "mail.other": lambda row: None}) as rig:
            await schedule(ticks, 100)
            await until(lambda: store.acked == [2] and 1 in store.errors)
            await until(lambda: rig.value("ticks_total", **EMPTY) >= 5)
            assert rig.value("worker_errors_total", type="run_ended") == 0
    assert "CancelledError" in store.errors[1]
    assert [line["error"] for line in logs if line["event"] == "row failed"] == [store.errors[1]]


async def test_a16_a_cancellation_that_leaks_from_the_processor_gets_a_new_consumer(work, ticks):
    """It ends bullmq's run() without an event, and a second run() would have no lock renewal."""
    seen = []

    async def process(job, token):
        seen.append(job.id)
        if len(seen) == 1:
            raise asyncio.CancelledError
        return {}

    with capture_logs() as logs:
        async with work(process=process) as rig:
            await schedule(ticks, 200)
            await until(lambda: len(seen) >= 4)
            assert rig.value("worker_errors_total", type="run_ended") == 1
            assert rig.runner.fault is None
            assert rig.runner._consumer.lockManager.is_running()
    assert [line for line in logs if line["event"] == "consumer ended; starting a new one"]


async def test_a_listener_that_raises_does_not_end_the_consumer(work, ticks):
    def broken(*_args):
        raise RuntimeError("listener")

    async with work() as rig:
        await rig.ready()
        for name in ("completed", "active", "error", "stalled", "drained"):
            rig.runner._consumer.on(name, broken)
        await schedule(ticks, 100)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 5)
        assert rig.value("worker_errors_total", type="run_ended") == 0


@pytest.mark.parametrize("data", [{}, {"tenantId": ""}, {"tenantId": 5}, {"tenantId": "x" * 129}, [], "x", None])
async def test_a_tick_without_a_tenant_fails_without_retry(work, ticks, redis, data):
    async with work() as rig:
        await ticks.add("tick", data, {"attempts": 5})
        await until(lambda: redis.zcard("bull:ticks:failed") == 1)
        assert rig.value("ticks_total", outcome="invalid") == 1
    [job] = await ticks.getFailed()
    assert job.attemptsMade == 1
    assert job.failedReason.startswith("not a tick: tenantId: ")


async def test_a_ghost_tick_whose_hash_is_gone_is_no_tick(work, ticks, redis):
    """Its id is in ``delayed``, its hash was deleted: BullMQ still hands it out, once."""
    await schedule(ticks, 500, offset=499)
    [due] = redis.zrange("bull:ticks:delayed", 0, -1)
    redis.delete(f"bull:ticks:{due}")
    store = FakeOutbox(row(1, tenant_id=""))
    async with work(store, handlers={"mail.send": lambda row: None}) as rig:
        await until(lambda: rig.value("ticks_total", outcome="invalid") == 1)
        assert rig.value("worker_errors_total", type="run_ended") == 0
    assert "claim" not in store.calls


async def test_a_tick_without_data_is_the_default_tenants(work, ticks):
    store = FakeOutbox(row(1))
    async with work(store, handlers={"mail.send": lambda row: None}, default_tenant="acme"):
        await ticks.upsertJobScheduler("drain", {"every": 100_000}, "drain", None, {})
        await until(lambda: store.acked == [1])


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("the database cannot be reached"),
        SchemaError("the outbox schema is missing: run `tickkeeper outbox migrate`"),
        ValueError("postgresql://app:hunter2@db/app is odd"),
    ],
)
async def test_a_tick_fails_visibly_while_the_outbox_is_away_and_goes_on(work, ticks, redis, error):
    store = FakeOutbox(row(1))

    def away(name):
        raise error

    store.before = away
    async with work(store, handlers={"mail.send": lambda row: None}) as rig:
        await schedule(ticks, 100)
        await until(lambda: rig.value("ticks_total", outcome="failed") >= 3)
        store.before = lambda name: None
        await until(lambda: store.acked == [1])
    failed = (await ticks.getFailed())[0]
    assert type(error).__name__ in failed.failedReason
    assert "hunter2" not in failed.failedReason + str(failed.stacktrace)


async def test_p8_a_redis_that_is_down_at_start_is_waited_for_in_silence(unused_tcp_port):
    server = Redis(port=unused_tcp_port)
    with capture_logs() as logs:
        async with working(f"redis://:hunter2@127.0.0.1:{unused_tcp_port}/0") as rig:
            await until(lambda: rig.value("worker_errors_total", type="redis") >= 5, 20)
            assert rig.runner.fault.startswith("redis: no connection to Redis")
            assert rig.value("worker_redis_up") == 0
            with server:
                server.client().config_set("requirepass", "hunter2")
                async with queue_of(f"redis://:hunter2@127.0.0.1:{unused_tcp_port}/0") as queue:
                    await schedule(queue, 100)
                    await until(lambda: rig.value("ticks_total", **EMPTY) >= 2)
                    assert rig.runner.fault is None
                    assert rig.value("worker_redis_up") == 1
                rig.processor.cut()
                await rig.runner.close(seconds=5)
    told = [line for line in logs if line["log_level"] in ("warning", "error")]
    assert len(told) == 1
    assert told[0]["event"] == "redis does not answer; trying on"
    assert "hunter2" not in str(logs)


async def test_a12_redis_away_for_6_seconds_under_load(own_redis):
    async with working(own_redis.url) as rig:
        async with queue_of(own_redis.url) as queue:
            for number in range(10):
                await schedule(queue, 100, scheduler=f"tick.{number}", data={"tenantId": f"t{number}"})
            await until(lambda: rig.value("ticks_total", **EMPTY) >= 50)
        own_redis.kill()
        await until(lambda: rig.runner.fault)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(6)  # the outage itself
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        own_redis.start()
        async with queue_of(own_redis.url) as queue:
            before = rig.value("ticks_total", **EMPTY)
            await schedule(queue, 100)
            back = time.monotonic()
            await until(lambda: rig.value("ticks_total", **EMPTY) > before)
            lag = time.monotonic() - back
    assert share < 0.2
    assert lag < 1


async def test_b1_a_replica_for_2_seconds_under_a_blocking_pop(own_redis):
    async with working(own_redis.url) as rig, queue_of(own_redis.url) as queue:
        await schedule(queue, 500)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 2)
        with own_redis.client() as client, Redis() as master:
            client.replicaof("127.0.0.1", master.port)
            await until(lambda: rig.runner.fault)
            client.replicaof("NO", "ONE")
        # The replica took its master's emptiness: the operator would register again.
        await schedule(queue, 500)
        before = rig.value("ticks_total", **EMPTY)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 2, 5)
        assert rig.value("worker_errors_total", type="run_ended") == 0


async def test_a_frozen_redis_is_noticed_and_thawed(own_redis):
    async with working(own_redis.url) as rig, queue_of(own_redis.url) as queue:
        await schedule(queue, 1000)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 1)
        own_redis.freeze()
        try:
            await until(lambda: rig.runner.fault, 20)
        finally:
            own_redis.thaw()
        before = rig.value("ticks_total", **EMPTY)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 2)


async def test_b2_a_network_that_drops_everything_is_noticed_by_an_idle_worker(redis_url, redis, redis_server):
    """The blocking connection has no socket time-out: only the worker's own limit can notice."""
    with Proxy(redis_server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        async with working(url) as rig:
            await rig.ready()
            await rig.idle()
            proxy.hold()
            await until(lambda: rig.runner.fault, 15)
            proxy.release()
            async with queue_of(redis_url) as queue:
                await schedule(queue, 100)
                await until(lambda: rig.value("ticks_total", **EMPTY) >= 2)


async def test_b10_maxclients_is_told_and_survived(own_redis):
    with own_redis.client() as client:
        async with working(own_redis.url) as rig, queue_of(own_redis.url) as queue:
            await rig.ready()
            await schedule(queue, 200)
            client.config_set("maxclients", 1)
            client.client_kill_filter(_type="normal", skipme=True)
            await until(lambda: rig.runner.fault)
            tried = rig.value("worker_errors_total", type="redis")
            began = time.monotonic()
            await asyncio.sleep(2)  # while it is tried again and again
            rate = (rig.value("worker_errors_total", type="redis") - tried) / (time.monotonic() - began)
            client.config_set("maxclients", 1000)
            before = rig.value("ticks_total", **EMPTY)
            await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 2)
    assert 0 < rate < 30


async def test_a_wait_that_breaks_as_it_is_answered_loses_no_time(work, ticks, monkeypatch):
    """The answer took the queue's only marker with it: another wait would last for seconds."""
    wait, broken = RedisBackend.waitForJob, []

    async def lossy(self, timeout):  # noqa: ASYNC109 - bullmq's signature
        result = await wait(self, timeout)
        if result and not broken:
            broken.append(result)
            raise RedisConnectionError("cut")
        return result

    monkeypatch.setattr(RedisBackend, "waitForJob", lossy)
    async with work() as rig:
        await rig.idle()
        await ticks.add("tick", {"tenantId": "acme"})
        await until(lambda: rig.value("ticks_total", **EMPTY) == 1, 3)
    assert broken


async def test_while_redis_is_away_one_try_in_200_ms_serves_all_that_wait(work, monkeypatch):
    tries = []

    async def refused(self, token):
        tries.append(token)
        raise RedisConnectionError("refused")

    async def insist(consumer):
        with suppress(RedisConnectionError):
            await consumer.moveToActive("token")

    async with work() as rig:
        await rig.idle()
        monkeypatch.setattr(Worker, "moveToActive", refused)
        began = time.monotonic()
        while time.monotonic() - began < 1:
            await asyncio.gather(*(insist(rig.runner._consumer) for _ in range(10)))
        seconds = time.monotonic() - began
        monkeypatch.undo()
    # The fetches that were already past the door when it went away come on top.
    assert len(tries) <= seconds / 0.2 + 4


async def test_a_next_slot_that_cannot_be_written_is_told(work, ticks, monkeypatch):
    """bullmq repeats it for ever and says nothing, with the job taken and the queue standing still."""
    away = True
    schedule_next = Worker._scheduleNextIteration

    async def sometimes(self, job):
        if away:
            raise RedisConnectionError("refused")
        await schedule_next(self, job)

    monkeypatch.setattr(Worker, "_scheduleNextIteration", sometimes)
    async with work() as rig:
        await schedule(ticks, 200)
        await until(lambda: rig.runner.fault == "redis: no connection to Redis (refused)")
        away = False
        await until(lambda: rig.value("ticks_total", **EMPTY) >= 3)
        assert rig.runner.fault is None


async def test_b14_flushall_during_an_active_tick(work, ticks, redis):
    store = FakeOutbox(row(1))

    async def handler(row):
        redis.flushall()

    async with work(store, handlers={"mail.send": handler}) as rig:
        await schedule(ticks, 100)
        await until(lambda: store.acked == [1])
        await schedule(ticks, 100)  # as the operator does
        before = rig.value("ticks_total", **EMPTY)
        await until(lambda: rig.value("ticks_total", **EMPTY) >= before + 2)
        assert rig.value("worker_errors_total", type="run_ended") == 0


async def test_p9_a_lost_lock_is_one_report(work, ticks, redis):
    store = FakeOutbox(row(1))

    async def handler(row):
        [lock] = redis.keys("bull:ticks:*:lock")
        redis.delete(lock)
        await until(lambda: rig.value("lock_losses_total") == 1)
        await asyncio.sleep(0.3)  # more renewals, each with its two events

    with capture_logs() as logs:
        async with work(store, handlers={"mail.send": handler}, lock_duration_ms=400, lock_renew_ms=100) as rig:
            await schedule(ticks, 100_000)
            await until(lambda: store.acked == [1])
            await rig.runner.close(seconds=5, busy=rig.processor.busy)
            assert rig.value("lock_losses_total") == 1
    told = [line for line in logs if line["log_level"] in ("warning", "error")]
    assert [line["event"] for line in told] == ["lock of a running job lost; its rows keep their own leases"]


async def test_a_worker_whose_slots_are_all_taken_is_not_taken_for_deaf(work, ticks, monkeypatch):
    monkeypatch.setattr("tickkeeper.worker.contact._STALE_AFTER", 1.0)
    store, go = FakeOutbox(row(1)), asyncio.Event()

    async def handler(row):
        await go.wait()

    options = {"concurrency": 1, "lock_duration_ms": 1000, "lock_renew_ms": 200}
    async with work(store, handlers={"mail.send": handler}, **options) as rig:
        await rig.ready()
        await schedule(ticks, 100_000)
        await until(lambda: store.leases)
        began = time.monotonic()
        while time.monotonic() - began < 2.5:  # longer than the silence that counts as deaf
            assert rig.runner.fault is None
            await asyncio.sleep(0.05)
        go.set()
        await until(lambda: store.acked == [1])


@pytest.mark.parametrize("ahead", [-10_800, 86_400])
async def test_a_clock_that_differs_from_redis_is_told(work, monkeypatch, ahead):
    """Behind, bullmq takes up nothing; ahead, it puts the next ticks far off: neither is an error to anybody."""
    real = time.time
    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr("tickkeeper.worker.consumer.time.time", lambda: real() + ahead)
        async with work() as rig:
            await rig.ready()
    told = [line["ahead_seconds"] for line in logs if "clock" in line["event"]]
    assert told == [pytest.approx(ahead, abs=5)]
    with capture_logs() as logs:
        async with work() as rig:
            await rig.ready()
    assert not [line for line in logs if "clock" in line["event"]]
