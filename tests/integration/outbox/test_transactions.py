"""Exactly once: rows leave in the transaction of their handlers' effects, on the real outbox."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.integration.outbox.benches import LEASE, PostgresBench, claim, ids
from tickkeeper.outbox import Claim, Failure, PostgresOutbox, Settled, StoreUnavailable

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture(autouse=True)
async def _effects(connection: Connection) -> None:
    await connection.execute("CREATE TABLE public.effects (row bigint)")


async def effects(connection: Connection) -> list[int]:
    cursor = await connection.execute("SELECT row FROM public.effects ORDER BY row")
    return [row for (row,) in await cursor.fetchall()]


async def act(session: Connection, row: Any) -> None:
    await session.execute("INSERT INTO public.effects VALUES (%s)", [row])


async def refuse() -> None:
    raise RuntimeError("no")


async def taken_of(bench: PostgresBench, count: int, **fields: Any) -> Claim:
    for _ in range(count):
        await bench.enqueue(**fields)
    return await claim(bench)


async def test_effect_and_row_are_one(postgres: PostgresBench, connection: Connection) -> None:
    taken = await taken_of(postgres, 3)
    rows = ids(taken)
    async with postgres.store.transaction(taken.lease_id, rows) as work:
        for row in rows:
            async with work.savepoint():
                await act(work.connection, row)
            work.done(row)
        assert await effects(connection) == []
        assert (await postgres.store.show(rows[0])) is not None
    assert await effects(connection) == rows
    assert await postgres.store.stats() == []


async def test_a_handler_that_raises_undoes_its_own_effect_only(
    postgres: PostgresBench, connection: Connection
) -> None:
    taken = await taken_of(postgres, 4)
    rows = ids(taken)
    failed = []
    async with postgres.store.transaction(taken.lease_id, rows) as work:
        for number, row in enumerate(rows):
            try:
                async with work.savepoint():
                    await act(work.connection, row)
                    if number in (1, 2):
                        await (refuse() if number == 1 else work.connection.execute("SELECT 1/0"))
            except (RuntimeError, psycopg.errors.DivisionByZero) as error:
                failed.append(Failure(row, str(error), after=timedelta()))
            else:
                work.done(row)
    assert await postgres.store.fail(taken.lease_id, failed) == Settled(2)
    assert await effects(connection) == [rows[0], rows[3]]
    assert ids(await claim(postgres)) == rows[1:3]


async def test_an_error_of_the_database_cannot_be_swallowed(postgres: PostgresBench, connection: Connection) -> None:
    taken = await taken_of(postgres, 2)
    rows = ids(taken)

    async def careless(session: Connection, row: Any) -> None:
        await act(session, row)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await session.execute("SELECT 1/0")

    async with postgres.store.transaction(taken.lease_id, rows) as work:
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            async with work.savepoint():
                await careless(work.connection, rows[0])
        async with work.savepoint():
            await act(work.connection, rows[1])
        work.done(rows[1])
    assert await effects(connection) == rows[1:]


async def test_a_handler_cannot_commit(postgres: PostgresBench, connection: Connection) -> None:
    taken = await taken_of(postgres, 1)
    async with postgres.store.transaction(taken.lease_id, ids(taken)) as work:
        for ending in (work.connection.commit, work.connection.rollback):
            with pytest.raises(psycopg.ProgrammingError, match=r"[Ee]xplicit"):
                await ending()
    assert await postgres.store.ack(taken.lease_id, ids(taken)) == Settled(1)


@pytest.mark.parametrize("whole", [False, True])
async def test_a_batch_succeeds_or_fails_whole(postgres: PostgresBench, connection: Connection, whole: bool) -> None:
    taken = await taken_of(postgres, 5)
    rows = ids(taken)

    async def handle(*, fails: bool) -> None:
        async with postgres.store.transaction(taken.lease_id, rows, whole=whole) as work:
            await work.connection.execute("INSERT INTO public.effects SELECT unnest(%s::bigint[])", [rows])
            if fails:
                raise RuntimeError("no")
            if not whole:
                work.done(*rows)

    with pytest.raises(RuntimeError, match="no"):
        await handle(fails=True)
    assert await effects(connection) == []
    await handle(fails=False)
    assert await effects(connection) == rows


async def test_c16_the_connection_is_cut_within_the_transaction(
    postgres: PostgresBench, connection: Connection
) -> None:
    taken = await taken_of(postgres, 3)
    rows = ids(taken)

    async def handle(some: list[Any], *, cut: bool) -> None:
        async with postgres.store.transaction(taken.lease_id, some) as work:
            for row in some:
                async with work.savepoint():
                    await act(work.connection, row)
                work.done(row)
                if cut:
                    await connection.execute(
                        "SELECT pg_terminate_backend(%s, 10000)", [work.connection.info.backend_pid]
                    )

    with pytest.raises(StoreUnavailable):
        await handle(rows, cut=True)
    assert await effects(connection) == []
    for row in rows:  # redone one by one
        await handle([row], cut=False)
    assert await effects(connection) == rows
    async with postgres.store.transaction(taken.lease_id, rows) as work:
        assert work.fenced == frozenset(rows)


async def test_c16_cut_while_a_handler_waits(postgres: PostgresBench, connection: Connection) -> None:
    taken = await taken_of(postgres, 1)
    (row,) = ids(taken)

    async def handle() -> None:
        async with postgres.store.transaction(taken.lease_id, [row]) as work, work.savepoint():
            ending = connection.execute("SELECT pg_terminate_backend(%s)", [work.connection.info.backend_pid])
            await asyncio.gather(work.connection.execute("SELECT pg_sleep(30)"), ending)

    with pytest.raises(StoreUnavailable):
        await handle()
    assert await postgres.store.ack(taken.lease_id, [row]) == Settled(1)


async def test_a_commit_that_fails_takes_nothing(postgres: PostgresBench, connection: Connection) -> None:
    await connection.execute("ALTER TABLE public.effects ADD UNIQUE (row) DEFERRABLE INITIALLY DEFERRED")
    taken = await taken_of(postgres, 2)
    rows = ids(taken)

    async def handle(some: list[Any], effect: Any) -> None:
        async with postgres.store.transaction(taken.lease_id, some) as work:
            for row in some:
                async with work.savepoint():
                    await act(work.connection, effect)
                work.done(row)

    with pytest.raises(psycopg.errors.UniqueViolation):
        await handle(rows, 1)
    assert await effects(connection) == []
    await handle(rows[:1], 1)
    assert await postgres.store.ack(taken.lease_id, rows) == Settled(1, fenced=1)


async def test_producers_of_a_key_do_not_wait_for_its_handlers(postgres: PostgresBench, connection: Connection) -> None:
    taken = await taken_of(postgres, 2, ordering_key="k")
    async with postgres.store.transaction(taken.lease_id, ids(taken)) as work:
        async with work.savepoint():
            await act(work.connection, 1)
        work.done(*ids(taken))
        async with asyncio.timeout(10):
            behind = await postgres.enqueue(ordering_key="k")
        assert ids(await claim(postgres)) == []
    assert ids(await claim(postgres)) == [behind.id]


async def test_a_handler_may_enqueue_to_its_own_key(postgres: PostgresBench, connection: Connection) -> None:
    taken = await taken_of(postgres, 1, ordering_key="k")
    async with postgres.store.transaction(taken.lease_id, ids(taken)) as work:
        cursor = await work.connection.execute(
            "SELECT id FROM tickkeeper.enqueue('acme', 'mail', '1', ordering_key => 'k')"
        )
        row = await cursor.fetchone()
        work.done(*ids(taken))
    assert row is not None
    assert ids(await claim(postgres)) == [row[0]]


async def test_transactions_leave_connections_for_acks(dsn: str, postgres: PostgresBench) -> None:
    for _ in range(3):
        await postgres.enqueue()
    async with PostgresOutbox(dsn, max_connections=1, transaction_connections=1, pool_timeout=0.3) as store:
        first = await store.claim("acme", kinds=None, limit=1, lease=LEASE)
        second = await store.claim("acme", kinds=None, limit=2, lease=LEASE)
        async with store.transaction(first.lease_id, ids(first)):
            assert await store.renew(first.lease_id, ids(first), LEASE) == Settled(1)
            assert await store.ack(second.lease_id, ids(second)) == Settled(2)


async def test_a_cancelled_transaction_is_rolled_back(postgres: PostgresBench, connection: Connection) -> None:
    taken = await taken_of(postgres, 1)
    started = asyncio.Event()

    async def handle() -> None:
        async with postgres.store.transaction(taken.lease_id, ids(taken)) as work, work.savepoint():
            await act(work.connection, 1)
            work.done(*ids(taken))
            started.set()
            await asyncio.Event().wait()

    handling = asyncio.create_task(handle())
    await started.wait()
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert await effects(connection) == []
    assert await postgres.store.ack(taken.lease_id, ids(taken)) == Settled(1)


async def test_c1_handlers_run_at_read_committed_whatever_the_default(dsn: str, connection: Connection) -> None:
    await connection.execute(
        f"ALTER DATABASE {dsn.rpartition('/')[2]} SET default_transaction_isolation = 'serializable'".encode()
    )
    async with PostgresOutbox(dsn) as store, store.transaction((await empty(store)).lease_id, [1]) as work:
        cursor = await work.connection.execute("SHOW transaction_isolation")
        assert await cursor.fetchone() == ("read committed",)
        assert work.fenced == {1}


async def empty(store: PostgresOutbox) -> Claim:
    return await store.claim("acme", kinds=None, limit=1, lease=LEASE)


async def test_a_whole_has_what_is_still_ours(postgres: PostgresBench, dsn: str) -> None:
    taken = await taken_of(postgres, 4)
    rows = ids(taken)
    await postgres.store.ack(taken.lease_id, rows[:1])
    async with postgres.store.transaction(taken.lease_id, rows, whole=True) as work:
        assert (sorted(work.held), sorted(work.fenced)) == (rows[1:], rows[:1])
        # Nobody else is given them, and whoever holds the lease need not fear for it.
        assert ids(await claim(postgres)) == []
        assert await postgres.store.renew(taken.lease_id, rows[1:], LEASE) == Settled(3)
    assert await postgres.store.stats() == []


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("statement", "error"),
    [("SELECT 1/0", psycopg.errors.InFailedSqlTransaction), ("ROLLBACK", psycopg.errors.InvalidTransactionState)],
)
async def test_what_was_not_committed_is_never_done(
    postgres: PostgresBench, connection: Connection, statement: str, error: type[Exception], whole: bool
) -> None:
    """PostgreSQL answers the commit of a transaction that failed, or is over, without an error."""
    taken = await taken_of(postgres, 2)
    rows = ids(taken)

    async def handle() -> None:
        async with postgres.store.transaction(taken.lease_id, rows, whole=whole) as work:
            await act(work.connection, rows[0])
            with suppress(psycopg.errors.DivisionByZero):
                await work.connection.execute(statement.encode())
            work.done(*rows)

    with pytest.raises(error):
        await handle()
    assert await effects(connection) == []
    assert await postgres.store.ack(taken.lease_id, rows) == Settled(2)


async def test_what_a_handler_sets_is_not_the_next_ones(dsn: str, postgres: PostgresBench) -> None:
    async with PostgresOutbox(dsn, transaction_connections=1) as store:
        for whole in (False, True, False, True):
            taken = await taken_of(postgres, 2)
            async with store.transaction(taken.lease_id, ids(taken), whole=whole) as work:
                assert sorted(work.held) == ids(taken)
                connection = work.connection
                cursor = await connection.execute("SELECT current_setting('search_path'), to_regclass('scratch')")
                assert await cursor.fetchone() == ('"$user", public', None)
                connection.row_factory = dict_row
                await connection.execute("SET search_path = nowhere")
                await connection.execute("CREATE TEMP TABLE scratch ()")
                work.done(*ids(taken))
    assert await postgres.store.stats() == []


async def _busy(work: Any) -> "asyncio.Task[Any]":
    """Leave a statement running on the connection, as the rest of a gather that failed does."""
    left = asyncio.create_task(work.connection.execute("SELECT pg_sleep(3600)"))
    while not work.connection.lock.locked():  # noqa: ASYNC110 - psycopg's own lock
        await asyncio.sleep(0)
    return left


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_statement_that_was_left_running_holds_nothing_up(
    postgres: PostgresBench, connection: Connection, whole: bool, fails: bool
) -> None:
    taken = await taken_of(postgres, 2)
    left = []

    async def handle() -> None:
        async with postgres.store.transaction(taken.lease_id, ids(taken), whole=whole) as work:
            await act(work.connection, ids(taken)[0])
            left.append(await _busy(work))
            work.done(*ids(taken))
            if fails:
                raise RuntimeError("the other one of the gather")

    expected = (RuntimeError, "the other") if fails else (psycopg.errors.InFailedSqlTransaction, "left a statement")
    async with asyncio.timeout(20):
        with pytest.raises(expected[0], match=expected[1]):
            await handle()
        with pytest.raises(psycopg.Error):
            await left[0]
    assert await effects(connection) == []
    assert await postgres.store.ack(taken.lease_id, ids(taken)) == Settled(2)


async def test_a_statement_left_running_in_a_savepoint_costs_its_row_only(
    postgres: PostgresBench, connection: Connection
) -> None:
    taken = await taken_of(postgres, 2)
    first, second = ids(taken)

    async def handle(work: Any) -> None:
        async with work.savepoint():
            await act(work.connection, first)
            await _busy(work)

    async with asyncio.timeout(20), postgres.store.transaction(taken.lease_id, [first, second]) as work:
        with pytest.raises(psycopg.errors.InFailedSqlTransaction, match="left a statement running"):
            await handle(work)
        async with work.savepoint():
            await act(work.connection, second)
        work.done(second)
    assert await effects(connection) == [second]


async def test_a_result_that_is_kept_half_read_costs_the_connection(
    postgres: PostgresBench, connection: Connection
) -> None:
    taken = await taken_of(postgres, 1)
    kept = []

    async def handle() -> None:
        async with postgres.store.transaction(taken.lease_id, ids(taken), whole=True) as work:
            kept.append(work.connection.cursor().stream("SELECT generate_series(1, 100000)"))
            await anext(kept[0])

    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable, match="did not read its result"):
            await handle()
    assert await postgres.store.ack(taken.lease_id, ids(taken)) == Settled(1)
    with suppress(psycopg.Error):
        await kept[0].aclose()


@pytest.mark.parametrize("statement", ["ROLLBACK; BEGIN", "ROLLBACK AND CHAIN", "COMMIT AND CHAIN"])
@pytest.mark.parametrize("whole", [False, True])
async def test_another_transaction_is_not_ours(postgres: PostgresBench, statement: str, whole: bool) -> None:
    taken = await taken_of(postgres, 2)

    async def handle() -> None:
        async with postgres.store.transaction(taken.lease_id, ids(taken), whole=whole) as work:
            await work.connection.execute(statement.encode())
            work.done(*ids(taken))

    with pytest.raises(psycopg.errors.InvalidTransactionState, match="not its own"):
        await handle()


async def test_a_transaction_waits_for_its_turn_as_long_as_others_work(dsn: str, postgres: PostgresBench) -> None:
    taken = await taken_of(postgres, 2)
    first, second = ids(taken)
    async with PostgresOutbox(dsn, transaction_connections=1, pool_timeout=0.2) as store:

        async def settle() -> None:
            async with store.transaction(taken.lease_id, [second]) as work:
                work.done(second)

        async with store.transaction(taken.lease_id, [first]) as work:
            waiting = asyncio.create_task(settle())
            # Longer than the pool lets anybody wait.
            assert await asyncio.wait({waiting}, timeout=0.6) == (set(), {waiting})
            work.done(first)
        await waiting
    assert await postgres.store.stats() == []
