"""A database with other work to do: old snapshots, and many small transactions."""

import asyncio
import itertools
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, ids
from tickkeeper.outbox import NewRow, PostgresOutbox, enqueue, enqueue_many, queries

Connection = psycopg.AsyncConnection[Any]


ROUNDS, ROWS = 8, 250


@pytest.mark.parametrize("key", [None, "k"])
async def test_c11_a_held_snapshot_costs_a_look_at_what_it_keeps(
    connection: Connection, dsn: str, key: str | None
) -> None:
    """An idle REPEATABLE READ session keeps every row version. A drain reads them a few times, not for each row.

    An ordering key adds little to that. Told by the index entries that were read, not by time.
    """
    await connection.execute("ALTER TABLE tickkeeper.outbox SET (autovacuum_enabled = off)")
    async with await psycopg.AsyncConnection.connect(dsn) as idle:
        await idle.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await idle.execute("SELECT count(*) FROM tickkeeper.outbox")
        read = [0]
        for number in range(1, ROUNDS + 1):
            await enqueue_many(connection, [NewRow("acme", "mail", n, ordering_key=key) for n in range(ROWS)])
            async with PostgresOutbox(dsn) as store:
                while (taken := await store.claim("acme", kinds=["mail"], limit=ROWS, lease=LEASE)).rows:
                    await store.ack(taken.lease_id, ids(taken))
            read.append(await _read(connection, deleted=ROWS * number))
        assert read[-1] - read[-2] <= 12 * ROWS * ROUNDS
        await idle.rollback()


async def _read(connection: Connection, *, deleted: int) -> int:
    """Index entries read, once the sessions have reported so many deletions: they do so when they end."""
    async with asyncio.timeout(60):
        while True:
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            cursor = await connection.execute(
                "SELECT n_tup_del, (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'outbox') "
                "FROM pg_stat_user_tables WHERE relname = 'outbox'"
            )
            reported, read = await cursor.fetchone() or (0, 0)
            if reported >= deleted:
                return int(read)
            await asyncio.sleep(0.05)


def test_c12_nothing_is_notified() -> None:
    for name, text in queries.queries("tickkeeper").items():
        assert b"notify" not in text.lower().replace(b"no notify", b""), name


async def test_c12_producers_do_not_wait_for_one_another(connection: Connection, dsn: str) -> None:
    """A NOTIFY takes a lock of the whole server at each commit; ours take none that producers of other keys want."""
    async with (
        await psycopg.AsyncConnection.connect(dsn) as stopped,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other,
    ):
        for key in (None, "a"):
            await enqueue(stopped, "acme", "mail", 1, ordering_key=key, dedup_key=f"d{key}")
        waits = itertools.count()

        async def watch() -> None:
            while True:
                cursor = await connection.execute(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
                if await cursor.fetchone() != (0,):
                    next(waits)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(30):
            for number in range(500):
                await enqueue(other, "acme", "mail", number, ordering_key=None if number % 2 else f"b{number}")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert next(waits) == 0
        cursor = await other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 0")
        assert await cursor.fetchone() == (0,)
