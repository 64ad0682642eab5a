"""How long one look holds Redis: two hundred overdue schedules behind a hundred thousand jobs, its worst case."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

from redis import Redis as Client

from benchmarks.keeper.result import Figure, Row
from benchmarks.keeper.sizes import Sizes
from benchmarks.lab.figures import percentile
from benchmarks.lab.progress import say
from benchmarks.lab.schedules import JOB_NAME, PREFIX
from embedded.redis import Redis
from tickkeeper.bullmq.apply import Applier
from tickkeeper.bullmq.clients import RedisSettings, close, connect
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import BATCH, Observer, Wanted
from tickkeeper.schedules.desired import Desired, Every, Owner, Place, ResourceKey
from tickkeeper.schedules.plan import Plan, State, Step
from tickkeeper.schedules.wanted import Retention

ROWS = ("held",)

_QUEUE = QueueKey(PREFIX, "held")
_LATE_MS = 120_000
_LOOKS = 50
#: Microseconds from which a call is kept in the slow log: none of the script's own calls take as long, and logging
#: those would be measured with it.
_SLOW = 500
_CHUNK = 10_000
_HELD_MS = 5


def play(sizes: Sizes, chosen: frozenset[str]) -> Iterator[Row]:
    """Redis' own slow log says how long each look took, by Redis' clock."""
    assert chosen
    say(f"held: {_LOOKS} looks a run behind {sizes.waiting} jobs")
    with Redis() as server, server.client() as raw:
        row = Row("held", raw={"ms": asyncio.run(_looks(server.url, raw, sizes))})
    runs: list[list[float]] = row.raw["ms"]
    row.figures += [
        Figure(
            f"one look at {BATCH} overdue behind {sizes.waiting} jobs, p50", "ms", [percentile(run, 50) for run in runs]
        ),
        Figure("the longest", "ms", [max(run) for run in runs]),
    ]
    row.at_most("held-p99", max(percentile(run, 99) for run in runs), "ms", _HELD_MS)
    yield row


async def _looks(url: str, raw: Client, sizes: Sizes) -> list[list[float]]:
    client = connect(RedisSettings.model_validate({"url": url}), name="bench")
    try:
        wanted = [Wanted(_desired(index), watched=True) for index in range(BATCH)]
        applier, observer = Applier(client, max_len_events=100), Observer(client)
        for one in wanted:
            await applier.apply(one.desired, Plan(State.MISSING, (Step.UPSERT,)))
        _fill(raw, sizes.waiting)
        for one in wanted:
            _make_late(raw, one.desired.place.scheduler_id)
        raw.config_set("slowlog-log-slower-than", _SLOW)
        raw.config_set("slowlog-max-len", _LOOKS * 2)
        return [await _run(observer, raw, wanted) for _ in range(sizes.runs)]
    finally:
        await close(client)


async def _run(observer: Observer, raw: Client, wanted: list[Wanted]) -> list[float]:
    raw.slowlog_reset()
    for _ in range(_LOOKS):
        await observer.look(_QUEUE, wanted, now=int(time.time() * 1000))
    scripts = [each for each in raw.slowlog_get(_LOOKS * 2) if "EVALSHA" in str(each["command"])[:12]]
    # What is not in the log was faster than _SLOW.
    return [each["duration"] / 1000 for each in scripts] + [_SLOW / 1000] * (_LOOKS - len(scripts))


def _desired(index: int) -> Desired:
    base = Desired(
        owner=Owner("bench", ResourceKey("default", f"t{index}"), f"uid-{index}", 1),
        place=Place(_QUEUE.prefix, _QUEUE.queue, f"t{index}"),
        schedule=Every(60_000, 1 + index),
        job_name=JOB_NAME,
        data={"tenantId": f"t{index}"},
        opts=Retention().opts(),
    )
    return replace(base, data={**base.data, "tickkeeper": {"cluster": "bench"}})


def _fill(raw: Client, count: int) -> None:
    for start in range(0, count, _CHUNK):
        raw.lpush(_QUEUE.key("wait"), *(f"job-{n}" for n in range(start, min(count, start + _CHUNK))))


def _make_late(raw: Client, scheduler_id: str) -> None:
    """Its tick waits at the far end of the list, as if no worker had come round for two minutes."""
    due = int(raw.zscore(_QUEUE.key("repeat"), scheduler_id) or 0)
    before, after = (f"repeat:{scheduler_id}:{score}" for score in (due, due - _LATE_MS))
    raw.rename(_QUEUE.key(before), _QUEUE.key(after))
    raw.zrem(_QUEUE.key("delayed"), before)
    raw.lpush(_QUEUE.key("wait"), after)
    raw.zadd(_QUEUE.key("repeat"), {scheduler_id: due - _LATE_MS})
