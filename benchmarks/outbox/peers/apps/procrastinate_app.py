"""procrastinate: its asynchronous connector, thirty jobs at once as its page on concurrency has it, jobs deleted."""

# mypy: ignore-errors
# Its packages are in an environment of its own.

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import procrastinate
from psycopg_pool import AsyncConnectionPool

_CONCURRENCY = 30
_DSN = os.environ["PEER_DATABASE"]
_PAD = "x" * 89


class Calls:
    """How many there were, and when the last was over."""

    def __init__(self) -> None:
        self.number = 0
        self.last = 0.0

    def count(self) -> None:
        """One is over."""
        self.number += 1
        self.last = time.perf_counter()


calls = Calls()
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=_DSN, min_size=4, max_size=20))
pool: AsyncConnectionPool


@app.task(name="row")
async def row(pad: str) -> None:  # noqa: ARG001 - a job has a payload
    """Nothing."""
    calls.count()


@app.task(name="effect")
async def effect(number: int) -> None:
    """One INSERT."""
    async with pool.connection() as connection:
        await connection.execute("INSERT INTO effects (id) VALUES (%s)", (number,))
    calls.count()


async def setup() -> dict:
    """Its tables, and the one for effects."""
    await app.schema_manager.apply_schema_async()
    await app.connector.execute_query_async("CREATE TABLE effects (id bigint NOT NULL)")
    return {}


async def drain(rows: int) -> dict:
    """Calls that do nothing."""
    return await _drain(rows, row, lambda _: {"pad": _PAD})


async def once(rows: int) -> dict:
    """Calls with one INSERT each."""
    global pool
    async with AsyncConnectionPool(_DSN, min_size=10, max_size=20, kwargs={"autocommit": True}, open=False) as pool:
        return await _drain(rows, effect, lambda number: {"number": number})


async def _drain(rows: int, task: Any, arguments: Callable[[int], dict]) -> dict:
    for start in range(0, rows, 5000):
        await task.batch_defer_async(*(arguments(number) for number in range(start, min(rows, start + 5000))))
    await app.connector.execute_query_async("ANALYZE procrastinate_jobs")
    started = time.perf_counter()
    await app.run_worker_async(
        concurrency=_CONCURRENCY, wait=False, delete_jobs="always", listen_notify=False, install_signal_handlers=False
    )
    return {"seconds": calls.last - started, "called": calls.number, "left": rows - calls.number}


async def main(what: str, *words: str) -> None:
    """One question."""
    async with app.open_async():
        answer = await globals()[what](*map(int, words))
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
