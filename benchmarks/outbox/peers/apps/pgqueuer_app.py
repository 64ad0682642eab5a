"""pgqueuer: asyncpg's pool and uvloop; what its page on performance says about batches of short jobs."""

# mypy: ignore-errors
# Its packages are in an environment of its own.

import asyncio
import json
import os
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

_BATCH = 500
_PAYLOAD = json.dumps({"pad": "x" * 89}).encode()


async def setup(pool: asyncpg.Pool) -> None:
    """Its tables."""
    await Queries(AsyncpgPoolDriver(pool)).install()


async def fill(pool: asyncpg.Pool, rows: int) -> None:
    """Put jobs in."""
    queries = Queries(AsyncpgPoolDriver(pool))
    for start in range(0, rows, 5000):
        count = min(5000, rows - start)
        await queries.enqueue(["row"] * count, [_PAYLOAD] * count, [0] * count)
    await pool.execute("VACUUM (ANALYZE) pgqueuer")


async def drain(pool: asyncpg.Pool, rows: int) -> dict:
    """From the start of its worker to its last call."""
    await fill(pool, rows)
    manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))
    called = 0
    last = 0.0

    @manager.entrypoint("row")
    async def nothing(_job: Job) -> None:
        nonlocal called, last
        called += 1
        if called == rows:
            last = time.perf_counter()
            manager.shutdown.set()

    started = time.perf_counter()
    await manager.run(batch_size=_BATCH, dequeue_timeout=timedelta(seconds=1))
    left = await pool.fetchval("SELECT count(*) FROM pgqueuer")
    return {"seconds": last - started, "called": called, "left": left}


async def serve(pool: asyncpg.Pool, seconds: float) -> dict:
    """Take what comes; how old it was, in milliseconds."""
    manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))
    ages: list[float] = []

    @manager.entrypoint("row")
    async def measure(job: Job) -> None:
        ages.append((time.time() - json.loads(job.payload)["at"]) * 1000)

    asyncio.get_running_loop().call_later(seconds, manager.shutdown.set)
    await manager.run(batch_size=_BATCH, dequeue_timeout=timedelta(seconds=1))
    return {"ages": ages}


async def produce(pool: asyncpg.Pool, rows: int, seconds: float) -> dict:
    """A transaction of ten jobs a hundred times a second, or as many as are wanted."""
    queries = Queries(AsyncpgPoolDriver(pool))
    at_once = max(1, round(rows / seconds / 100))
    started = time.perf_counter()
    for number in range(rows // at_once):
        payload = json.dumps({"at": time.time(), "pad": "x" * 60}).encode()
        await queries.enqueue(["row"] * at_once, [payload] * at_once, [0] * at_once)
        await asyncio.sleep(max(0.0, started + (number + 1) * at_once * seconds / rows - time.perf_counter()))
    return {"rows": rows // at_once * at_once, "seconds": time.perf_counter() - started}


async def main(what: str, *words: str) -> None:
    """One question."""
    pool = await asyncpg.create_pool(os.environ["PEER_DATABASE"], min_size=4, max_size=20)
    answer = await globals()[what](pool, *(float(word) if "." in word else int(word) for word in words))
    print(json.dumps(answer or {}), flush=True)
    await pool.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
