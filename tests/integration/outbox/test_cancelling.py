"""Callers that are cancelled leave at once, and nothing is lost by it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, PostgresBench, claim, ids
from tickkeeper.outbox import PostgresOutbox, StoreUnavailable

Connection = psycopg.AsyncConnection[Any]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


async def hold(connection: Connection) -> None:
    """Make every write to the outbox wait until the connection rolls back."""
    await connection.execute("BEGIN")
    await connection.execute("LOCK TABLE tickkeeper.outbox IN SHARE ROW EXCLUSIVE MODE")


async def waits(connection: Connection, count: int = 1) -> bool:
    cursor = await connection.execute(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return await cursor.fetchone() == (count,)


async def test_rows_of_a_cancelled_claim_are_handed_back(postgres: PostgresBench, connection: Connection) -> None:
    rows = [(await postgres.enqueue()).id for _ in range(3)]
    await hold(connection)
    claiming = asyncio.create_task(claim(postgres, kinds=["mail"]))
    await until(lambda: waits(connection))
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await connection.execute("ROLLBACK")

    async def handed_back() -> bool:
        shown = [await postgres.store.show(row) for row in rows]
        return all(each is not None and each.state == "ready" and each.attempts == 0 for each in shown)

    # Not merely as before the claim: it went through, and was undone.
    await until(lambda: _was_updated(connection, rows[0]))
    await until(handed_back)
    taken = await claim(postgres)
    assert (ids(taken), taken.alone, taken.rows[0].attempts) == (rows, False, 1)


async def _was_updated(connection: Connection, row: int) -> bool:
    """Whether the row, one of three in an empty page, is no longer in its first version."""
    cursor = await connection.execute("SELECT ctid::text FROM tickkeeper.outbox WHERE id = %s", [row])
    (place,) = await cursor.fetchone() or ("(0,0)",)
    return int(place.strip("()").split(",")[1]) > 3


async def test_an_ack_whose_caller_is_cancelled_still_happens(postgres: PostgresBench, connection: Connection) -> None:
    row = await postgres.enqueue()
    taken = await claim(postgres)
    await hold(connection)
    acking = asyncio.create_task(postgres.store.ack(taken.lease_id, ids(taken)))
    await until(lambda: waits(connection))
    acking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acking
    await connection.execute("ROLLBACK")

    async def gone() -> bool:
        return await postgres.store.show(row.id) is None

    await until(gone)


async def test_close_waits_for_what_runs(dsn: str, connection: Connection) -> None:
    async with PostgresOutbox(dsn) as store:
        bench = PostgresBench(store, connection)
        row = await bench.enqueue()
        taken = await claim(bench)
        await hold(connection)
        acking = asyncio.create_task(store.ack(taken.lease_id, ids(taken)))
        await until(lambda: waits(connection))
        acking.cancel()
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        assert not closing.done()
        await connection.execute("ROLLBACK")
        await closing
        await store.close()
    cursor = await connection.execute("SELECT count(*) FROM tickkeeper.outbox WHERE id = %s", [row.id])
    assert await cursor.fetchone() == (0,)


async def test_a_call_that_waits_too_long_is_given_up(dsn: str, connection: Connection) -> None:
    async with PostgresOutbox(dsn, call_timeout=0.5) as store:
        bench = PostgresBench(store, connection)
        await bench.enqueue()
        taken = await claim(bench)
        await hold(connection)
        with pytest.raises(StoreUnavailable, match=r"gave no answer within 0\.5 s"):
            await store.renew(taken.lease_id, ids(taken), LEASE)
        assert await waits(connection, 0)  # the server has given it up too
        await connection.execute("ROLLBACK")
        assert (await store.renew(taken.lease_id, ids(taken), LEASE)).changed == 1


async def test_a_store_that_is_closed_says_so(dsn: str) -> None:
    store = PostgresOutbox(dsn)
    with pytest.raises(StoreUnavailable, match="not open yet"):
        await store.kinds("acme")
    await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.kinds("acme")
