"""BullMQ without TickKeeper, in a process of its own: the floor of what registering costs, and other writers.

``python -m benchmarks.lab.bare`` answers questions as benchmarks.lab.partner puts them.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from bullmq import Queue
from redis.asyncio import Redis

from benchmarks.lab.schedules import JOB_NAME, PREFIX
from tickkeeper.bullmq.clients import RedisSettings, connect
from tickkeeper.schedules.wanted import Retention

#: Queues and prefix of the floors: apart from what the operator looks after.
FLOOR_PREFIX = "floor"

_UID = "00000000-0000-4000-8000-000000000000"
_LOOK = 0.0005
_PATIENCE = 30.0


async def upserts(
    redis: Redis, *, queues: Sequence[str], count: int, every_ms: int, concurrency: int, prefix: str = FLOOR_PREFIX
) -> dict[str, float]:
    """Register ``count`` new schedulers over ``queues``, ``concurrency`` at a time; the seconds it took."""
    async for key in redis.scan_iter(f"{prefix}:*", count=1000):
        await redis.unlink(key)
    open_queues = [Queue(queue, {"connection": redis, "prefix": prefix}) for queue in queues]
    todo = iter(range(count))

    async def lane() -> None:
        for index in todo:
            await _upsert(open_queues[index % len(queues)], f"t{index}", every_ms, 1 + index % every_ms)

    # Scripts and connections exist before the clock starts, as they do in a process that has been running.
    await asyncio.gather(*(_upsert(queue, "warm", every_ms, 1) for queue in open_queues))
    await asyncio.gather(*(redis.ping() for _ in range(concurrency)))
    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(concurrency)))
    return {"seconds": time.perf_counter() - started}


async def removals(
    redis: Redis, *, queue: str, ids: Sequence[str], times: int, pause: tuple[float, float], floor_queue: str
) -> dict[str, list[float]]:
    """As an application's last replica, remove one scheduler after another and wait until it is back; in between, one
    bare upsert of another. Milliseconds each; a removal's begin before its call."""
    owned = Queue(queue, {"connection": redis, "prefix": PREFIX})
    floor = Queue(floor_queue, {"connection": redis, "prefix": FLOOR_PREFIX})
    healed, bare = [], []
    await _upsert(floor, "warm", 600_000, 1)
    for index in range(times):
        await asyncio.sleep(random.uniform(*pause))
        started = time.perf_counter()
        await _upsert(floor, f"t{index}", 600_000, 1 + index)
        bare.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(random.uniform(*pause))
        scheduler_id = ids[index % len(ids)]
        started = time.perf_counter()
        await owned.removeJobScheduler(scheduler_id)
        while await redis.zscore(f"{PREFIX}:{queue}:repeat", scheduler_id) is None:
            if time.perf_counter() - started > _PATIENCE:
                raise TimeoutError(f"{scheduler_id} was not registered again within {_PATIENCE:g} s")
            await asyncio.sleep(_LOOK)
        healed.append((time.perf_counter() - started) * 1000)
    return {"healed_ms": healed, "bare_ms": bare}


async def driver_upsert(
    redis: Redis, *, queue: str, scheduler_id: str, every_ms: int, ahead_seconds: float = 0.0, keep: bool = False
) -> dict[str, Any]:
    """What an application does that registers its own clock: no stamp, no retention.

    ``ahead_seconds``: its machine's clock is that much ahead. ``keep``: it writes the data that are there.
    """
    data: Any = {"from": "an application"}
    if keep:
        stored = await redis.hget(f"{PREFIX}:{queue}:repeat:{scheduler_id}", "data")
        data = json.loads(stored) if stored else data
    real = time.time
    with patch("time.time", lambda: real() + ahead_seconds):
        await Queue(queue, {"connection": redis, "prefix": PREFIX}).upsertJobScheduler(
            scheduler_id, {"every": every_ms}, JOB_NAME, data
        )
    return {}


async def driver_remove(redis: Redis, *, queue: str, scheduler_id: str) -> dict[str, Any]:
    """What the stop() of its last replica does."""
    await Queue(queue, {"connection": redis, "prefix": PREFIX}).removeJobScheduler(scheduler_id)
    return {}


async def _upsert(queue: Queue, name: str, every_ms: int, offset_ms: int) -> None:
    """Register one with as much in it as the operator writes."""
    stamp = {"cluster": _UID, "namespace": "default", "name": name, "uid": _UID, "generation": 1}
    data = {"tenantId": name, "tickkeeper": stamp | {"deletionPolicy": "Delete", "everyMs": every_ms}}
    await queue.upsertJobScheduler(
        f"{JOB_NAME}.{name}", {"every": every_ms, "offset": offset_ms}, JOB_NAME, data, Retention().opts()
    )


_CALLS = {call.__name__: call for call in (upserts, removals, driver_upsert, driver_remove)}


async def _answer(url: str, question: Mapping[str, Any]) -> Any:
    arguments = {key: value for key, value in question.items() if key != "do"}
    redis = connect(RedisSettings.model_validate({"url": url}), max_connections=256)
    try:
        return await _CALLS[question["do"]](redis, **arguments)
    finally:
        await redis.aclose()


def main() -> None:
    """Answer until standard input ends. The Redis is the first argument."""
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_answer(sys.argv[1], json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
