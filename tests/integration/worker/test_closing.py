"""The end of a consumer: what it has taken it works, and what it has not taken another one gets."""

import asyncio

from bullmq import Worker

from tests.integration.worker.conftest import until


async def test_d1_a_job_that_is_being_taken_when_the_end_comes_is_worked(work, ticks, redis, monkeypatch):
    taken, given, hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
    done = []
    take = Worker.moveToActive

    async def slow(self, token):
        job = await take(self, token)
        if job is not None and job.data["tenantId"] == "late":
            # Redis has moved it; its answer is still on the way.
            taken.set()
            await given.wait()
        return job

    async def process(job, _token):
        if job.data["tenantId"] == "first":
            await hurry.wait()
        done.append(job.data["tenantId"])

    monkeypatch.setattr(Worker, "moveToActive", slow)
    async with work(process=process, concurrency=2) as rig:
        await rig.ready()
        await ticks.add("tick", {"tenantId": "first"})
        await until(lambda: redis.llen("bull:ticks:active") == 1)
        await ticks.add("tick", {"tenantId": "late"})
        await asyncio.wait_for(taken.wait(), 10)
        closing = asyncio.create_task(rig.runner.close(seconds=10))
        await until(lambda: rig.runner._closing.is_set())
        hurry.set()
        await until(lambda: done == ["first"])
        await until(lambda: redis.llen("bull:ticks:active") == 1)
        given.set()
        await asyncio.wait_for(closing, 10)
        assert done == ["first", "late"]
        assert redis.llen("bull:ticks:active") == 0
        assert redis.zcard("bull:ticks:completed") == 2


async def test_what_is_added_after_the_end_has_begun_is_left_to_others(work, ticks, redis):
    hurry = asyncio.Event()

    async def process(_job, _token):
        await hurry.wait()

    async with work(process=process, concurrency=2) as rig:
        await rig.ready()
        await ticks.add("tick", {"tenantId": "acme"})
        await until(lambda: redis.llen("bull:ticks:active") == 1)
        closing = asyncio.create_task(rig.runner.close(seconds=10))
        await until(lambda: rig.runner._closing.is_set())
        await ticks.add("tick", {"tenantId": "later"})
        hurry.set()
        await asyncio.wait_for(closing, 10)
        assert redis.llen("bull:ticks:active") == 0
        assert redis.llen("bull:ticks:wait") == 1
        # Whoever waits for the queue's marker is woken for it.
        assert redis.zscore("bull:ticks:marker", "0") == 0
