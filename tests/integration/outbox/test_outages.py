"""The database goes away and comes back: calls fail in bounded time, with the cause, and then work again."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
import pytest

from embedded.ports import free_port
from embedded.postgres import Postgres
from tests.integration.outbox.benches import ids
from tickkeeper.outbox import NewRow, PostgresOutbox, Settled, StoreUnavailable, enqueue_many_sync, migrate_sync

LEASE = timedelta(seconds=30)
T = TypeVar("T")


@pytest.fixture
async def own_store(own_postgres: Postgres) -> AsyncIterator[PostgresOutbox]:
    """The outbox of a server of our own, impatient, with four connections in use."""
    migrate_sync(own_postgres.dsn())
    async with PostgresOutbox(own_postgres.dsn(), pool_timeout=1.0, connect_timeout=2, call_timeout=2.0) as store:
        await store.check_schema()
        await asyncio.gather(*(store.oldest("acme") for _ in range(8)))
        yield store


def produce(dsn: str, rows: int) -> list[Any]:
    with psycopg.connect(dsn) as producer:
        return [each.id for each in enqueue_many_sync(producer, [NewRow("acme", "mail", n) for n in range(rows)])]


async def claim(store: PostgresOutbox, limit: int = 10) -> Any:
    return await store.claim("acme", kinds=None, limit=limit, lease=LEASE)


async def recovered(call: Callable[[], Awaitable[T]], *, within: float = 30) -> tuple[T, float]:
    """Ask until there is an answer; the answer, and the seconds that it took."""
    began = time.monotonic()
    while True:
        try:
            return await call(), time.monotonic() - began
        except StoreUnavailable:
            assert time.monotonic() - began < within
            await asyncio.sleep(0.02)


async def test_c14_killed_and_restarted_in_mid_drain(own_postgres: Postgres, own_store: PostgresOutbox) -> None:
    sent = produce(own_postgres.dsn(), 100)
    held = await claim(own_store)
    own_postgres.kill()
    for call in (claim(own_store), own_store.ack(held.lease_id, ids(held)), own_store.oldest("acme")):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"database (failed|cannot be reached)"):
            await call
        assert time.monotonic() - began < 10
    own_postgres.start()
    settled, took = await recovered(lambda: own_store.ack(held.lease_id, ids(held)))
    assert settled == Settled(10)
    assert took < 10
    delivered = ids(held)
    while (taken := await claim(own_store)).rows:
        assert await own_store.ack(taken.lease_id, ids(taken)) == Settled(len(taken.rows))
        delivered += ids(taken)
    assert sorted(delivered) == sent


async def test_c14_absent_at_start(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    server = Postgres(port=port)
    caplog.set_level(logging.WARNING)
    async with PostgresOutbox(server.dsn(), pool_timeout=0.5, connect_timeout=2) as store:
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=r"cannot be reached: .*efused"):
                await store.kinds("acme")
        assert [record for record in caplog.records if record.name.startswith("psycopg")] == []
        with server:
            migrate_sync(server.dsn())
            produce(server.dsn(), 1)
            taken, _ = await recovered(lambda: claim(store))
            assert len(taken.rows) == 1
            await store.close()


async def test_a_waiting_call_gets_its_connection_when_the_server_comes_back(own_postgres: Postgres) -> None:
    migrate_sync(own_postgres.dsn())
    own_postgres.stop()
    async with PostgresOutbox(own_postgres.dsn(), pool_timeout=60.0, call_timeout=60.0) as store:
        waiting = asyncio.create_task(store.kinds("acme"))
        await asyncio.sleep(0.5)  # several attempts have failed by then
        await asyncio.to_thread(own_postgres.start)
        began = time.monotonic()
        assert list(await waiting) == []
        assert time.monotonic() - began < 5


async def test_connecting_is_tried_again_at_a_constant_pace_while_somebody_waits() -> None:
    """Pauses that double would keep callers waiting, after an outage, for as long as it lasted."""
    attempts = asyncio.Semaphore(0)

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.release()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, PostgresOutbox(f"host={host} port={port} user=x dbname=x", pool_timeout=60.0) as store:
        waiting = asyncio.create_task(store.kinds("acme"))
        async with asyncio.timeout(12):  # doubling from 1 s, that is the time for five
            for _ in range(12):
                await attempts.acquire()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        server.close()


async def test_a_frozen_server_does_not_hold_callers(own_postgres: Postgres, own_store: PostgresOutbox) -> None:
    produce(own_postgres.dsn(), 3)
    held = await claim(own_store)
    own_postgres.freeze()
    began = time.monotonic()
    calls = [claim(own_store), own_store.ack(held.lease_id, ids(held)), *(own_store.oldest("acme") for _ in range(6))]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 8
    assert time.monotonic() - began < 15
    own_postgres.thaw()
    settled, _ = await recovered(lambda: own_store.ack(held.lease_id, ids(held)))
    assert settled.changed + settled.fenced == 3  # frozen, the server may have done it before it was asked again
    await asyncio.gather(*(recovered(lambda: own_store.oldest("acme")) for _ in range(8)))


async def test_c4_a_server_turned_read_only(own_postgres: Postgres, own_store: PostgresOutbox) -> None:
    sent = produce(own_postgres.dsn(), 20)
    held = await claim(own_store)
    await _set_read_only(own_postgres, "on")
    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        await claim(own_store)
    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        await own_store.ack(held.lease_id, ids(held))
    await _set_read_only(own_postgres, "off")
    settled, _ = await recovered(lambda: own_store.ack(held.lease_id, ids(held)))
    assert settled == Settled(10)
    taken, _ = await recovered(lambda: claim(own_store))
    assert sorted([*ids(held), *ids(taken)]) == sent


async def test_c4_connections_to_a_read_only_server_are_dropped(
    own_postgres: Postgres, own_store: PostgresOutbox
) -> None:
    """A fail-over leaves them on what is now a standby: only new ones find the new primary."""
    produce(own_postgres.dsn(), 1)
    before = await _sessions(own_postgres)
    assert before
    await _set_read_only(own_postgres, "on")
    with pytest.raises(StoreUnavailable, match="read-only transaction"):
        await claim(own_store)
    async with asyncio.timeout(30):
        while True:
            if not before & await _sessions(own_postgres):
                break
            await asyncio.sleep(0.02)


async def test_after_a_restart_one_call_finds_out_and_not_each(
    own_postgres: Postgres, own_store: PostgresOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert len(await _sessions(own_postgres)) > 1
    await asyncio.to_thread(own_postgres.restart)
    failed = 0
    for _ in range(4):
        try:
            await own_store.oldest("acme")
        except StoreUnavailable:
            failed += 1
    assert failed <= 1
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def _sessions(server: Postgres) -> set[int]:
    """The server's processes for the outbox's connections."""
    async with await psycopg.AsyncConnection.connect(server.dsn(), autocommit=True) as admin:
        cursor = await admin.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'tickkeeper'")
        return {pid for (pid,) in await cursor.fetchall()}


async def _set_read_only(server: Postgres, value: str) -> None:
    """For every session, running ones too."""
    async with await psycopg.AsyncConnection.connect(server.dsn(), autocommit=True) as admin:
        await admin.execute("SET default_transaction_read_only = off")
        await admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        await admin.execute("SELECT pg_reload_conf()")
    while True:
        async with await psycopg.AsyncConnection.connect(server.dsn(), autocommit=True) as fresh:
            cursor = await fresh.execute("SHOW default_transaction_read_only")
            if await cursor.fetchone() == (value,):
                return
        await asyncio.sleep(0.02)


async def test_e8_no_password_in_errors_or_logs(own_postgres: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    wrong = own_postgres.dsn().replace(own_postgres.dsn().split(":")[2].split("@")[0], "verysecret")
    unreachable = "postgresql://user:verysecret@127.0.0.1:1/database"
    for dsn in (wrong, unreachable):
        async with PostgresOutbox(dsn, pool_timeout=0.5) as store:
            with pytest.raises(StoreUnavailable) as caught:
                await store.kinds("acme")
            told += [str(caught.value), repr(store), repr(vars(store))]
    assert "password authentication failed" in told[0]
    for unreadable in ("postgresql://user:verysecret%zz@host/x", "host=x password=verysecret oops verysecret"):
        with pytest.raises(ValueError, match="connection string cannot be read") as refused:
            PostgresOutbox(unreadable)
        told.append(str(refused.value))
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__
    assert [each for each in told if "verysecret" in each] == []
    assert "verysecret" not in caplog.text


async def test_too_few_connections_are_told_apart_from_an_outage(dsn: str) -> None:
    async with PostgresOutbox(dsn, max_connections=1, pool_timeout=0.2) as store:
        await store.check_schema()
        async with await psycopg.AsyncConnection.connect(dsn) as other:
            await other.execute("LOCK TABLE tickkeeper.outbox")
            blocked = asyncio.create_task(store.kinds("acme"))
            await _until_blocked(other)
            with pytest.raises(StoreUnavailable, match="no connection to the database was free"):
                await store.oldest("acme")
            await other.rollback()
        assert list(await blocked) == []


async def _until_blocked(connection: "psycopg.AsyncConnection[Any]") -> None:
    while True:
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        if await cursor.fetchone() == (1,):
            return
        await asyncio.sleep(0.02)
