"""How many calls a look takes, and what an argument costs."""

import time
from collections.abc import Sequence
from dataclasses import replace

from tests.integration.bullmq.conftest import Bench, desired
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import BATCH, Look, Wanted
from tickkeeper.schedules.desired import Cron
from tickkeeper.schedules.plan import Plan, State, Step

QUEUE = QueueKey("bull", "ticks")


async def register(bench: Bench, count: int) -> list[Wanted]:
    """Register ``count`` schedules; how to look at them once they were verified."""
    base = desired()
    found = [
        Wanted(replace(base, place=base.place._replace(scheduler_id=f"drain.t{number}"))) for number in range(count)
    ]
    for one in found:
        await bench.applier.apply(one.desired, Plan(State.MISSING, (Step.UPSERT,)))
    sights = (await look(bench, found)).sights
    return [replace(one, digest=sights[one.desired.place.scheduler_id].digest) for one in found]


async def look(bench: Bench, wanted: Sequence[Wanted]) -> Look:
    return await bench.observer.look(QUEUE, wanted, now=int(time.time() * 1000))


async def calls(bench: Bench, wanted: Sequence[Wanted]) -> int:
    before = bench.observer.looks
    await look(bench, wanted)
    return bench.observer.looks - before


async def test_a_queue_in_which_many_are_late_is_looked_at_in_halves(bench: Bench) -> None:
    wanted = await register(bench, BATCH)
    await look(bench, wanted)  # by now it is known to be healthy
    assert await calls(bench, wanted) == 1
    for one in wanted:
        bench.raw.zincrby(QUEUE.key("repeat"), -120_000, one.desired.place.scheduler_id)
    whole = await look(bench, wanted)
    assert len(whole.sights) == BATCH
    before = bench.observer.looks
    halves = await look(bench, wanted)
    assert bench.observer.looks - before == 2
    assert {where: sight.observed.score for where, sight in halves.sights.items()} == {
        where: sight.observed.score for where, sight in whole.sights.items()
    }
    for one in wanted:
        bench.raw.zincrby(QUEUE.key("repeat"), 120_000, one.desired.place.scheduler_id)
    await look(bench, wanted)
    assert await calls(bench, wanted) == 1


async def test_many_that_are_gone_are_looked_at_in_one_call(bench: Bench) -> None:
    wanted = await register(bench, BATCH)
    bench.raw.flushall()
    await look(bench, wanted)
    assert await calls(bench, wanted) == 1


async def test_ids_of_any_script_are_found(bench: Bench) -> None:
    base = desired()
    strange = 'drain.å "\\ 任务\U0001f558'
    one = Wanted(replace(base, place=base.place._replace(scheduler_id=strange)))
    await bench.applier.apply(one.desired, Plan(State.MISSING, (Step.UPSERT,)))
    sight = (await look(bench, [one])).sights[strange]
    assert sight.observed.score is not None
    assert (await look(bench, [replace(one, digest=sight.digest)])).sights == {}


def test_a_cron_schedule_is_asked_for_anew_with_time() -> None:
    one = Wanted(replace(desired(), schedule=Cron("* * * * *", "UTC")))
    assert one.argument(0) != one.argument(60_000)
    fixed = Wanted(desired())
    assert fixed.argument(0) is fixed.argument(60_000)
