"""concurrencyPolicy: one tick of a schedule at a time, or as many as come."""

import asyncio
import time

import pytest

from tests.integration.worker.conftest import schedule, until
from tests.unit.worker.fakes import FakeOutbox, row
from tickkeeper.bullmq.clients import connect
from tickkeeper.worker.limits import Limits
from tickkeeper.worker.overlap import Running, running_key

KEY = running_key("bull", "ticks", "tick.acme")


def _stamped(policy):
    stamp = {"cluster": "c", "namespace": "n", "name": "x", "uid": "u", "generation": 1, "concurrencyPolicy": policy}
    return {"tenantId": "acme", "tickkeeper": stamp}


class _Meter:
    """A handler that takes 500 ms, and how many ran at once."""

    def __init__(self):
        self.now = self.most = self.total = 0

    async def __call__(self, row):
        self.now += 1
        self.most = max(self.most, self.now)
        self.total += 1
        await asyncio.sleep(0.5)
        self.now -= 1


class _Endless(FakeOutbox):
    """A row for each claim, one a tick."""

    async def claim(self, tenant_id, *, kinds, limit, lease):
        number = len(self.calls)
        self.rows[number] = row(number, attempts=0, tenant_id=tenant_id)
        return await super().claim(tenant_id, kinds=kinds, limit=1, lease=lease)


def _options(meter):
    from datetime import timedelta

    return {
        "handlers": {"mail.send": meter},
        "concurrency": 4,
        "limits": Limits(budget=timedelta(milliseconds=1)),
        "policy": "Allow",
    }


def _tick_stamp(policy):
    data = _stamped(policy)
    data["tickkeeper"]["tick"] = {"timeBudgetMs": 10}
    return data


async def test_a10_forbid_never_runs_two_at_once_and_counts_what_it_skips(work, ticks, redis):
    meter = _Meter()
    async with work(_Endless(), **_options(meter)) as rig:
        await schedule(ticks, 100, data=_tick_stamp("Forbid"))
        await until(lambda: meter.total >= 4, 20)
        assert rig.value("ticks_total", outcome="overlap") >= 6
    assert meter.most == 1
    skipped = [job.returnvalue for job in await ticks.getCompleted() if job.returnvalue["skipped"]]
    assert skipped[0]["skipped"] == "overlap"
    assert skipped[0]["tenantId"] == "acme"
    assert skipped[0]["claimed"] == 0


async def test_a10_forbid_holds_between_two_workers(work, ticks):
    meter = _Meter()
    async with work(_Endless(), **_options(meter)) as one, work(_Endless(), **_options(meter)) as two:
        await schedule(ticks, 100, data=_tick_stamp("Forbid"))
        await until(
            lambda: meter.total >= 3 and all(rig.value("ticks_total", outcome="overlap") for rig in (one, two)), 20
        )
    assert meter.most == 1


async def test_a10_allow_runs_several_at_once(work, ticks, redis):
    meter = _Meter()
    async with work(_Endless(), **_options(meter)) as rig:
        await schedule(ticks, 100, data=_tick_stamp("Allow"))
        await until(lambda: meter.most >= 2, 20)
        assert redis.keys("bull:ticks:tickkeeper:*") == []
        assert rig.value("ticks_total", outcome="overlap") == 0


async def test_two_schedules_do_not_hold_each_other_up(work, ticks):
    meter = _Meter()
    async with work(_Endless(), **_options(meter)):
        await schedule(ticks, 100, scheduler="tick.acme", data=_tick_stamp("Forbid"))
        await schedule(ticks, 100, scheduler="tick.globex", data={**_tick_stamp("Forbid"), "tenantId": "globex"})
        await until(lambda: meter.most >= 2, 20)


async def test_the_key_lies_beside_the_queues_own_and_goes_with_the_tick(work, ticks, redis):
    store, held = FakeOutbox(row(1)), []

    async def handler(row):
        held.append((redis.exists(KEY), redis.pttl(KEY)))

    async with work(store, handlers={"mail.send": handler}, running_ttl=20):
        await schedule(ticks, 100_000)
        await until(lambda: store.acked == [1])
        await until(lambda: not redis.exists(KEY))
    [(exists, ttl)] = held
    assert exists
    assert 10_000 < ttl <= 20_000


def test_the_key_has_the_queues_hash_tag():
    assert running_key("{bull}", "ticks", "a.b") == "{bull}:ticks:tickkeeper:running:a.b"


async def test_a_killed_ticks_key_expires(work, ticks, redis):
    redis.set(KEY, "somebody-who-was-killed", px=1500)
    store = FakeOutbox(row(1))
    async with work(store, handlers={"mail.send": lambda row: None}) as rig:
        await schedule(ticks, 200)
        await until(lambda: rig.value("ticks_total", outcome="overlap") >= 2)
        assert store.acked == []
        await until(lambda: store.acked == [1])


async def test_a_tick_that_loses_its_key_stops_claiming(work, ticks, redis):
    started = asyncio.Event()

    async def handler(row):
        started.set()
        redis.set(KEY, "another", px=60_000)
        await until(lambda: rig.processor._stops and next(iter(rig.processor._stops)).stopping)

    async with work(_Endless(), handlers={"mail.send": handler}, running_ttl=0.3) as rig:
        await schedule(ticks, 100_000)
        await started.wait()
        await until(lambda: rig.value("ticks_total", outcome="lost") == 1)
    assert redis.get(KEY) == "another"  # and leaves the other's key alone


async def test_acquire_is_idempotent_and_exclusive(redis_url, redis):
    from pydantic import SecretStr

    from tickkeeper.bullmq.clients import RedisSettings

    client = connect(RedisSettings(url=SecretStr(redis_url)))
    one, two = Running(client, KEY, ttl=5), Running(client, KEY, ttl=5)
    try:
        # The client may send a command twice, when the first answer was lost.
        assert await one.acquire()
        assert await one.acquire()
        assert not await two.acquire()
        await two.release()
        assert redis.exists(KEY)
        await one.release()
        assert not redis.exists(KEY)
        assert await two.acquire()
    finally:
        await client.aclose()


async def test_release_does_not_wait_for_a_redis_that_is_away(own_redis):
    from pydantic import SecretStr

    from tickkeeper.bullmq.clients import RedisSettings

    client = connect(RedisSettings(url=SecretStr(own_redis.url)))
    running = Running(client, KEY, ttl=5)
    assert await running.acquire()
    own_redis.freeze()
    try:
        began = time.monotonic()
        await running.release()
        assert time.monotonic() - began < 3
    finally:
        own_redis.thaw()
        await client.aclose()


@pytest.mark.parametrize("slots", [4, 1])
async def test_a_backlog_is_drained_beyond_the_budget_while_nobody_waits(work, ticks, slots):
    """The budget is the interval, and the slot that comes while a tick runs is skipped: half of them would be lost."""

    async def slow(_row):
        await asyncio.sleep(0.25)

    store = FakeOutbox(*(row(number) for number in range(30)))
    limits = Limits(batch_size=5, lanes=1)

    async def delivered():
        return [job.returnvalue["done"] for job in await ticks.getCompleted() if job.returnvalue["done"]]

    async def all_told():
        return sum(await delivered()) == 30

    async with work(store, handlers={"mail.send": slow}, concurrency=slots, limits=limits):
        await schedule(ticks, 1000)
        await until(all_told, 30)
    assert (max(await delivered()) == 30) is (slots > 1)
