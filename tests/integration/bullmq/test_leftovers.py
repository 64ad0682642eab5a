"""A scheduler's entry is gone, its hash and a tick that waits are not: no tick of an edition that is over is left."""

import time
from dataclasses import replace

import pytest

from tests.integration.bullmq.conftest import OWNER, Bench, desired, slots
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.schedules.desired import Every
from tickkeeper.schedules.plan import State

# Half an hour from a slot on either side: no test here crosses one.
HOURLY = desired(schedule=Every(3_600_000, (int(time.time() * 1000) + 1_800_000) % 3_600_000))


def waiting(bench: Bench) -> list[str]:
    return [*bench.raw.zrange(bench.key("delayed"), 0, -1), *bench.raw.lrange(bench.key("wait"), 0, -1)]


async def test_an_edit_while_the_entry_is_gone_leaves_no_tick_of_the_old_edition(bench: Bench) -> None:
    await bench.mend(HOURLY)
    bench.raw.zrem(bench.key("repeat"), "drain.acme")
    edited = replace(HOURLY, schedule=Every(60_000, 5), owner=replace(OWNER, generation=2))
    await bench.mend(edited)
    assert waiting(bench) == [bench.job_id(edited)]


async def test_another_writers_tick_goes_too_where_its_entry_is_gone(bench: Bench) -> None:
    wanted = replace(HOURLY, adopts_unstamped=True)
    driver = bench.applier._scheduler(QueueKey("bull", "ticks"))
    await driver.upsertJobScheduler("drain.acme", {"every": 7_000_000, "offset": 5}, "drain")
    bench.raw.zrem(bench.key("repeat"), "drain.acme")
    await bench.mend(wanted)
    assert waiting(bench) == [bench.job_id(wanted)]


async def test_removing_a_schedule_whose_entry_is_gone_leaves_no_tick_at_all(bench: Bench) -> None:
    await bench.mend(HOURLY)
    bench.raw.zrem(bench.key("repeat"), "drain.acme")
    # Edited since then: its waiting tick is on the slots of the old edition.
    await bench.remove(replace(HOURLY, schedule=Every(60_000, 5)))
    assert waiting(bench) == []
    assert bench.raw.exists(bench.key("repeat:drain.acme")) == 0


async def test_a_due_tick_that_waits_for_a_worker_is_kept_where_the_entry_is_gone(bench: Bench) -> None:
    await bench.mend(HOURLY)
    [job] = bench.raw.zrange(bench.key("delayed"), 0, -1)
    due = f"repeat:drain.acme:{slots(HOURLY) - 3_600_000}"
    bench.raw.rename(bench.key(job), bench.key(due))
    bench.raw.zrem(bench.key("delayed"), job)
    bench.raw.lpush(bench.key("wait"), due)
    bench.raw.zrem(bench.key("repeat"), "drain.acme")
    await bench.mend(HOURLY)
    assert waiting(bench) == [bench.job_id(HOURLY), due]


@pytest.mark.parametrize("field", ["every", "offset"])
@pytest.mark.parametrize("value", ["", "x", "0", "-5", "1e400", "nan", "0.3"])
async def test_a_hash_without_sense_does_not_hide_that_the_entry_is_gone(bench: Bench, field: str, value: str) -> None:
    await bench.mend(HOURLY)
    bench.raw.zrem(bench.key("repeat"), "drain.acme")
    bench.raw.hset(bench.key("repeat:drain.acme"), field, value)
    assert (await bench.mend(HOURLY)).state is State.MISSING
