"""Handlers in the transaction in which their rows leave, on a real database."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.worker.conftest import until
from tests.integration.worker.process import enqueue, rows
from tickkeeper.outbox import PostgresOutbox, StoreUnavailable, migrate_sync
from tickkeeper.worker import Dead, Retry
from tickkeeper.worker.handlers import Kinds, Registry, as_handler
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.limits import Limits
from tickkeeper.worker.stop import Stop
from tickkeeper.worker.tick import TickResult, drain

INSERT = "INSERT INTO effect (n) VALUES (%s)"


@pytest.fixture
def outbox(database: str) -> str:
    """A database with the outbox and a table of effects, on which an effect twice is an error."""
    migrate_sync(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (n int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
    return database


@pytest.fixture
async def store(outbox: str) -> AsyncIterator[PostgresOutbox]:
    async with PostgresOutbox(outbox) as store:
        yield store


def _effects(database: str) -> list[int]:
    with psycopg.connect(database) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM effect ORDER BY n").fetchall()]


async def _drain(store: Any, call: Any, *, timeout: float = 20, stop: Stop | None = None, **options: Any) -> TickResult:  # noqa: ASYNC109 - the handler's
    registry = Registry([as_handler(call, Kinds.of("pay"), transaction=True, timeout=timeout, **options)])
    invoker = Invoker(default_timeout=20, cleanup_seconds=0.1)
    async with asyncio.timeout(30):
        return await drain(
            store, "acme", registry, invoker=invoker, stop=stop, limits=Limits(lease=timedelta(seconds=10))
        )


async def _pay(row: Any, connection: Any) -> None:
    await connection.execute(INSERT, (row.payload["n"],))


async def test_effects_and_rows_leave_together(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(700)))
    result = await _drain(store, _pay)
    assert (result.claimed, result.done, result.fenced, result.ended) == (700, 700, 0, "empty")
    assert _effects(outbox) == list(range(700))
    assert rows(outbox) == []


async def test_a_row_that_fails_is_undone_alone(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(6)))

    async def handler(row: Any, connection: Any) -> Any:
        await _pay(row, connection)
        match row.payload["n"]:
            case 1:
                raise ValueError("no")
            case 2:
                return Retry(timedelta(hours=1))
            case 3:
                raise Dead("never")
            case 4:
                await connection.execute("SELECT 1 / 0")
        return None

    result = await _drain(store, handler)
    assert (result.done, result.retried, result.dead, result.fenced) == (2, 3, 1, 0)
    assert _effects(outbox) == [0, 5]
    assert [attempts for _, attempts, _ in rows(outbox)] == [1, 1, 1]


async def test_a_batch_handler_is_called_once_and_fails_whole(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(300)))
    calls = []

    async def handler(batch: Any, connection: Any) -> None:
        calls.append(len(batch))
        await connection.execute(
            "INSERT INTO effect (n) SELECT unnest(%s::int[])", ([row.payload["n"] for row in batch],)
        )
        if len(calls) == 1:
            raise ValueError("no")

    result = await _drain(store, handler, batch=True)
    assert (calls, result.retried, result.done) == ([300], 300, 0)
    assert _effects(outbox) == []
    with psycopg.connect(outbox) as connection:
        connection.execute("UPDATE tickkeeper.outbox SET available_at = now(), attempts = 0")
    result = await _drain(store, handler, batch=True)
    assert (calls, result.done) == ([300, 300], 300)
    assert _effects(outbox) == list(range(300))


async def test_c16_a_connection_that_is_cut_in_mid_batch_is_redone_row_by_row(
    store: PostgresOutbox, outbox: str
) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(20)))
    calls: list[int] = []

    async def handler(row: Any, connection: Any) -> None:
        calls.append(row.payload["n"])
        await _pay(row, connection)
        if len(calls) == 10:
            with psycopg.connect(outbox, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    result = await _drain(store, handler)
    assert (result.claimed, result.done, result.fenced, result.retried) == (20, 20, 0, 0)
    assert _effects(outbox) == list(range(20))
    assert len(calls) == 30


async def test_a_row_whose_effect_the_commit_refuses_fails_alone(store: PostgresOutbox, outbox: str) -> None:
    """A deferred constraint is judged by the commit: the whole transaction fails, its rows are redone one by one."""
    enqueue(outbox, "pay", *({"n": n} for n in (1, 2, 2, 3)))
    result = await _drain(store, _pay)
    assert (result.done, result.retried) == (3, 1)
    assert _effects(outbox) == [1, 2, 3]
    [(error,)] = rows(outbox, "last_error")
    assert "effect_pkey" in error


async def test_a_handler_that_hangs_writes_nothing_into_what_is_committed(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(3)))
    go, refused = asyncio.Event(), asyncio.Event()

    async def handler(row: Any, connection: Any) -> None:
        await _pay(row, connection)
        if row.payload["n"] == 1:
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue
            try:
                await connection.execute(INSERT, (99,))
            except psycopg.Error:
                refused.set()

    result = await _drain(store, handler, timeout=0.3)
    assert (result.done, result.retried) == (2, 1)
    go.set()
    await until(refused.is_set)
    assert _effects(outbox) == [0, 2]
    [(error,)] = rows(outbox, "last_error")
    assert "timed out" in error


async def test_a_batch_handler_that_hangs_is_timed_out_once(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(50)))
    calls = []

    async def handler(batch: Any, connection: Any) -> None:
        calls.append(len(batch))
        await connection.execute("SELECT pg_sleep(60)")

    result = await _drain(store, handler, timeout=0.3, batch=True)
    assert (calls, result.retried, result.done) == ([50], 50, 0)


async def test_c7_a_row_that_is_no_longer_ours_has_no_effect(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", {"n": 1}, {"n": 2})
    transaction = store.transaction

    def late(lease_id: Any, ids: Any, **how: Any) -> Any:
        with psycopg.connect(outbox) as connection:  # the lease ran out, and somebody else has claimed one of them
            connection.execute("UPDATE tickkeeper.outbox SET lease_id = gen_random_uuid() WHERE id = %s", (min(ids),))
        return transaction(lease_id, ids, **how)

    store.transaction = late  # type: ignore[method-assign]
    result = await _drain(store, _pay)
    assert (result.done, result.fenced) == (1, 1)
    assert _effects(outbox) == [2]


async def test_no_transaction_to_be_had_fails_the_tick_and_hands_the_rows_back(
    store: PostgresOutbox, outbox: str
) -> None:
    enqueue(outbox, "pay", {"n": 1}, {"n": 2})

    class Away:
        async def __aenter__(self) -> None:
            raise StoreUnavailable("no connection was free")

        async def __aexit__(self, *error: object) -> None:
            pass

    store.transaction = lambda *_, **__: Away()  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(StoreUnavailable, match="no connection was free"):
        await _drain(store, _pay)
    assert [(attempts, leased) for _, attempts, leased in rows(outbox)] == [(0, False)] * 2


async def test_d3_a_hard_stop_undoes_the_transaction_and_hands_the_rows_back(
    store: PostgresOutbox, outbox: str
) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(5)))
    stop = Stop()

    async def handler(row: Any, connection: Any) -> None:
        await _pay(row, connection)
        if row.payload["n"] == 2:
            stop.hard("shutdown")
            await asyncio.Event().wait()

    result = await _drain(store, handler, stop=stop)
    assert (result.done, result.released, result.ended) == (0, 5, "shutdown")
    assert _effects(outbox) == []
    assert [(attempts, leased) for _, attempts, leased in rows(outbox)] == [(0, False)] * 5


async def test_a_soft_stop_commits_what_is_done(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(5)))
    stop = Stop()

    async def handler(row: Any, connection: Any) -> None:
        await _pay(row, connection)
        if row.payload["n"] == 2:
            stop.soft("shutdown")

    result = await _drain(store, handler, stop=stop)
    assert (result.done, result.released) == (3, 2)
    assert _effects(outbox) == [0, 1, 2]


async def test_the_lease_is_held_while_a_transaction_takes_longer(store: PostgresOutbox, outbox: str) -> None:
    enqueue(outbox, "pay", *({"n": n} for n in range(4)))

    async def handler(row: Any, connection: Any) -> None:
        await _pay(row, connection)
        await asyncio.sleep(0.5)

    registry = Registry([as_handler(handler, Kinds.of("pay"), transaction=True)])
    result = await drain(
        store, "acme", registry, invoker=Invoker(default_timeout=20), limits=Limits(lease=timedelta(seconds=1))
    )
    assert (result.done, result.fenced) == (4, 0)
    assert _effects(outbox) == [0, 1, 2, 3]
