"""Hard cases of databases and clocks, on the real outbox."""

import asyncio
import itertools
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, PostgresBench, claim, ids
from tickkeeper.outbox import Claim, Failure, NewRow, PostgresOutbox, Settled, StoreUnavailable, enqueue, enqueue_many
from tickkeeper.outbox.queries import queries

Connection = psycopg.AsyncConnection[Any]
SECOND = timedelta(seconds=1)


@pytest.fixture
async def strict(dsn: str, connection: Connection) -> AsyncIterator[list[PostgresOutbox]]:
    """Four workers' outboxes, whose default isolation is SERIALIZABLE."""
    await connection.execute(
        f"ALTER DATABASE {dsn.rpartition('/')[2]} SET default_transaction_isolation = 'serializable'".encode()
    )
    stores = [PostgresOutbox(dsn) for _ in range(4)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


async def on_update(connection: Connection, body: str) -> None:
    """Do something for each row that is updated in the outbox."""
    function = f"CREATE FUNCTION public.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN new; END $$"
    await connection.execute(function.encode())
    await connection.execute(
        "CREATE TRIGGER meddle BEFORE UPDATE ON tickkeeper.outbox FOR EACH ROW EXECUTE FUNCTION public.meddle()"
    )


async def test_c1_workers_whose_default_is_serializable(strict: list[PostgresOutbox], connection: Connection) -> None:
    await on_update(
        connection,
        "IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE 'isolation is %', "
        "current_setting('transaction_isolation'); END IF;",
    )
    sent = await enqueue_many(connection, [NewRow("acme", "mail", number) for number in range(400)])
    effects: Counter[object] = Counter()

    async def work(store: PostgresOutbox) -> None:
        while (taken := await store.claim("acme", kinds=None, limit=7, lease=LEASE)).rows:
            effects.update(ids(taken))
            assert await store.ack(taken.lease_id, ids(taken)) == Settled(len(taken.rows))

    await asyncio.gather(*(work(store) for store in strict))
    assert effects == Counter(each.id for each in sent)


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_c1_what_postgres_asks_to_be_repeated_is_repeated(
    postgres: PostgresBench, connection: Connection, state: str
) -> None:
    row = await postgres.enqueue()
    await connection.execute("CREATE SEQUENCE public.turns")
    await on_update(
        connection, f"IF nextval('public.turns') <= 3 THEN RAISE 'again' USING ERRCODE = '{state}'; END IF;"
    )
    taken = await claim(postgres)
    assert (ids(taken), taken.rows[0].attempts) == ([row.id], 1)


async def test_c1_what_can_never_pass_is_given_up(postgres: PostgresBench, connection: Connection) -> None:
    await postgres.enqueue()
    await on_update(connection, "RAISE 'again' USING ERRCODE = '40001';")
    with pytest.raises(StoreUnavailable, match="given up after 10 attempts: again"):
        await claim(postgres)


async def _out_of_order(postgres: PostgresBench, connection: Connection) -> Claim:
    """300 rows under a lease, whose order in the table is not that of their ids."""
    await enqueue_many(connection, [NewRow("acme", "mail", number) for number in range(300)])
    await connection.execute("UPDATE tickkeeper.outbox SET headers = '{}' WHERE id % 3 = 0")
    return await claim(postgres, limit=300)


async def test_c2_writes_in_opposite_order_reach_their_end(postgres: PostgresBench, connection: Connection) -> None:
    """Acks do not lock in the order of ids, so they may meet a failure in a deadlock: one of them is done again."""
    for _ in range(10):
        taken = await _out_of_order(postgres, connection)
        rows, store, lease = ids(taken), postgres.store, taken.lease_id
        renewed, one, other, failed = await asyncio.gather(
            store.renew(lease, rows[100:] + rows[:100], LEASE),
            store.ack(lease, rows),
            store.ack(lease, rows[::-1]),
            store.fail(lease, [Failure(row, "no") for row in rows[::2]]),
        )
        assert one.changed + other.changed + failed.changed == 300
        assert {each.changed + each.fenced for each in (renewed, one, other)} == {300}
        await connection.execute("DELETE FROM tickkeeper.outbox")


async def test_c2_acks_in_opposite_order_do_not_deadlock(postgres: PostgresBench, connection: Connection) -> None:
    for _ in range(10):
        taken = await _out_of_order(postgres, connection)
        rows, store, lease = ids(taken), postgres.store, taken.lease_id
        renewed, one, other = await asyncio.gather(
            store.renew(lease, rows[100:] + rows[:100], LEASE), store.ack(lease, rows), store.ack(lease, rows[::-1])
        )
        assert one.changed + other.changed == 300
        assert {each.changed + each.fenced for each in (renewed, one, other)} == {300}
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    cursor = await connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert await cursor.fetchone() == (0,)


@pytest.mark.parametrize("tenant", ["a\x00b", "a\ud800"])
async def test_a_tenant_that_no_text_column_can_hold_is_a_bad_argument(postgres: PostgresBench, tenant: str) -> None:
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        await claim(postgres, tenant=tenant, kinds=["mail"])
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        await postgres.store.oldest(tenant)


async def test_c7_late_ack_is_fenced(postgres: PostgresBench, dsn: str) -> None:
    """Lease 1 s, a handler of 3 s without renewal, and a second worker."""
    row = await postgres.enqueue()
    first = await claim(postgres, lease=SECOND)
    done = time.monotonic() + 3
    async with PostgresOutbox(dsn) as other:
        while not (second := await other.claim("acme", kinds=None, limit=9, lease=LEASE)).rows:
            assert time.monotonic() < done + 30
            await asyncio.sleep(0.05)
        assert (ids(second), second.rows[0].attempts, second.rows[0].suspect) == ([row.id], 2, True)
        await asyncio.sleep(done - time.monotonic())
        assert await postgres.store.ack(first.lease_id, [row.id]) == Settled(0, fenced=1)
        assert await other.ack(second.lease_id, [row.id]) == Settled(1)


class Ahead(datetime):
    """A clock that is ten minutes ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(minutes=10)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(UTC).replace(tzinfo=None)


async def test_c8_the_workers_clock_is_ten_minutes_ahead(
    postgres: PostgresBench, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + 600)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 600_000_000_000)
    for name, module in list(sys.modules.items()):
        if name.startswith("tickkeeper.outbox.") and "datetime" in vars(module):
            monkeypatch.setattr(module, "datetime", Ahead)
    due = await postgres.enqueue()
    later = await postgres.enqueue(delay=timedelta(minutes=5))
    taken = await claim(postgres)
    assert ids(taken) == [due.id]
    await _seconds(connection, due.id, "lease_until", 30)
    await postgres.store.renew(taken.lease_id, [due.id], timedelta(seconds=60))
    await _seconds(connection, due.id, "lease_until", 60)
    await postgres.store.fail(taken.lease_id, [Failure(due.id, "no", after=timedelta(seconds=90))])
    await _seconds(connection, due.id, "available_at", 90)
    await _seconds(connection, later.id, "available_at", 300)
    assert (await postgres.store.oldest("acme")).ready == 0


async def _seconds(connection: Connection, row_id: int, column: str, expected: float) -> None:
    query = f"SELECT extract(epoch FROM {column} - clock_timestamp())::float8 FROM tickkeeper.outbox WHERE id = %s"
    cursor = await connection.execute(query.encode(), [row_id])
    (ahead,) = await cursor.fetchone() or (None,)
    assert ahead is not None
    assert expected - 20 < ahead <= expected


async def test_c9_a_row_that_commits_late_is_delivered(postgres: PostgresBench, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as a, await psycopg.AsyncConnection.connect(dsn) as b:
        first = await enqueue(a, "acme", "mail", "a")
        second = await enqueue(b, "acme", "mail", "b")
        assert first.id < second.id
        await b.commit()
        taken = await claim(postgres)
        assert ids(taken) == [second.id]
        await postgres.store.ack(taken.lease_id, ids(taken))
        assert ids(await claim(postgres)) == []
        await a.commit()
        assert ids(await claim(postgres)) == [first.id]


@pytest.mark.parametrize("limit", [1, 5, 50])
async def test_rows_that_others_hold_hide_no_others(postgres: PostgresBench, dsn: str, limit: int) -> None:
    """Held by a producer that keeps them, or by a peer that is claiming them."""
    held = [(await postgres.enqueue("a", dedup_key=str(number))).id for number in range(5)]
    free = [(await postgres.enqueue("b")).id for _ in range(5)]
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        for number in range(5):
            await enqueue(producer, "acme", "a", 1, dedup_key=str(number))
        got: list[object] = []
        while (taken := await claim(postgres, limit=limit)).rows:
            assert len(taken.rows) <= limit
            got += ids(taken)
        assert got == free
    assert ids(await claim(postgres)) == held


async def test_a_row_that_a_peer_holds_for_a_moment_is_waited_for(
    postgres: PostgresBench, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that chooses among several kinds holds the head of each: an empty claim would end a tick too early."""
    row = await postgres.enqueue("b")
    async with await psycopg.AsyncConnection.connect(dsn) as peer:
        await peer.execute("SELECT FROM tickkeeper.outbox FOR UPDATE")
        assert ids(await claim(postgres, kinds=["a", "b"])) == []
        look = postgres.store._claims._due_left

        async def look_and_let_go(*arguments: Any) -> bool:
            left = await look(*arguments)
            await peer.rollback()
            return left

        monkeypatch.setattr(postgres.store._claims, "_due_left", look_and_let_go)
        assert ids(await claim(postgres, kinds=["a", "b"])) == [row.id]


async def test_a_look_that_takes_nothing_hides_no_rows_from_a_peer(postgres: PostgresBench, dsn: str) -> None:
    """A quick look locks what it finds; where one row is a suspect it takes none, and a peer must not think: empty."""
    rows = [(await postgres.enqueue("a")).id for _ in range(10)]
    given = {"tenant_id": "acme", "kind": "a", "limit": 500, "max_bytes": 1 << 25, "lease": 30.0, "lease_id": uuid4()}
    given |= {"behind_at": "-infinity", "behind_id": 0}
    async with await psycopg.AsyncConnection.connect(dsn) as peer:
        await peer.execute("UPDATE tickkeeper.outbox SET suspect = true WHERE id = %s", [rows[0]])
        await peer.commit()
        cursor = await peer.execute(queries("tickkeeper")["claim_plain"], given)
        (record,) = await cursor.fetchall()
        assert record[:2] == (None, "not plain")
        ours = asyncio.create_task(claim(postgres, kinds=["a"]))
        await asyncio.wait({ours}, timeout=0.01)
        await peer.rollback()
        taken = await ours
        assert ids(taken) == rows[:1], "the suspect comes alone"
        assert ids(await claim(postgres, kinds=["a"])) == rows[1:]


@pytest.mark.parametrize("kinds", [["a"], ["a", "b"]])
async def test_times_that_python_cannot_hold_cost_no_row(postgres: PostgresBench, dsn: str, kinds: list[str]) -> None:
    rows = [(await postgres.enqueue("a")).id for _ in range(4)]
    odd = [("available_at", "-infinity"), ("created_at", "infinity"), ("created_at", "0044-03-15 BC")]
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        for row_id, (column, value) in zip(rows, odd, strict=False):
            statement = f"UPDATE tickkeeper.outbox SET {column} = %s WHERE id = %s"
            await connection.execute(statement.encode(), [value, row_id])
    taken = await claim(postgres, kinds=kinds)
    assert sorted(ids(taken)) == rows
    assert min(row.available_at for row in taken.rows).year == 2
    assert {row.created_at.year for row in taken.rows} >= {2, 9998}


async def test_c15_a_lease_shorter_than_the_work_is_renewed(postgres: PostgresBench, dsn: str) -> None:
    row = await postgres.enqueue()
    lease = timedelta(seconds=1.5)
    taken = await claim(postgres, lease=lease)
    began = time.monotonic()
    async with PostgresOutbox(dsn) as other:
        for turn in itertools.count(1):
            await asyncio.sleep(0.1)
            if turn % 2 == 0:
                assert await postgres.store.renew(taken.lease_id, [row.id], lease) == Settled(1)
            assert (await other.claim("acme", kinds=None, limit=9, lease=LEASE)).rows == ()
            if time.monotonic() - began > 2 * lease.total_seconds():
                break
    assert await postgres.store.ack(taken.lease_id, [row.id]) == Settled(1)


async def test_c16_a_connection_cut_between_effect_and_ack(postgres: PostgresBench, connection: Connection) -> None:
    row = await postgres.enqueue(payload="effect")
    taken = await claim(postgres)
    await _cut(connection)
    # The worker dies with its connection: the row comes again, by the same id, and is not stranded.
    await postgres.elapse(LEASE)
    again = await _until_available(lambda: claim(postgres))
    assert (ids(again), again.rows[0].payload, again.rows[0].attempts) == ([row.id], "effect", 2)
    assert await postgres.store.ack(taken.lease_id, [row.id]) == Settled(0, fenced=1)
    # The worker lives: its ack passes once there is a connection again.
    await _cut(connection)
    settled = await _until_available(lambda: postgres.store.ack(again.lease_id, [row.id]))
    assert settled == Settled(1)


async def _cut(connection: Connection) -> None:
    """End every session but our own."""
    await connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def _until_available(call: Any) -> Any:
    for _ in range(10):
        try:
            return await call()
        except StoreUnavailable:
            continue
    raise AssertionError("still unavailable after 10 attempts")


async def test_c17_the_batch_halves_under_a_statement_timeout(dsn: str, connection: Connection) -> None:
    await on_update(connection, "PERFORM pg_sleep(0.004);")
    sent = await enqueue_many(connection, [NewRow("acme", "mail", number) for number in range(120)])
    await connection.execute(f"ALTER DATABASE {dsn.rpartition('/')[2]} SET statement_timeout = '200ms'".encode())
    async with PostgresOutbox(dsn) as store:
        delivered: list[object] = []
        sizes = []
        while (taken := await store.claim("acme", kinds=None, limit=120, lease=LEASE)).rows:
            sizes.append(len(taken.rows))
            assert await store.renew(taken.lease_id, ids(taken), LEASE) == Settled(len(taken.rows))
            delivered += ids(taken)
            assert await store.ack(taken.lease_id, ids(taken)) == Settled(len(taken.rows))
        assert sorted(delivered, key=str) == sorted((each.id for each in sent), key=str)
        assert max(sizes) < 60
        assert len(sizes) < 60


async def test_c17_a_write_of_many_rows_is_split(dsn: str, connection: Connection) -> None:
    sent = await enqueue_many(connection, [NewRow("acme", "mail", number) for number in range(120)])
    async with PostgresOutbox(dsn) as calm:
        taken = await calm.claim("acme", kinds=None, limit=120, lease=LEASE)
    await on_update(connection, "PERFORM pg_sleep(0.004);")
    await connection.execute(f"ALTER DATABASE {dsn.rpartition('/')[2]} SET statement_timeout = '200ms'".encode())
    async with PostgresOutbox(dsn) as store:
        failures = [Failure(row, "no") for row in ids(taken)]
        assert await store.fail(taken.lease_id, [*failures, Failure(999_999, "no")]) == Settled(120, fenced=1)
        assert [each.scheduled + each.ready for each in await store.stats()] == [len(sent)]


async def test_c17_one_row_that_is_too_slow_is_an_outage(dsn: str, connection: Connection) -> None:
    await enqueue(connection, "acme", "mail", 1)
    await on_update(connection, "PERFORM pg_sleep(10);")
    await connection.execute(f"ALTER DATABASE {dsn.rpartition('/')[2]} SET statement_timeout = '50ms'".encode())
    async with PostgresOutbox(dsn) as store:
        with pytest.raises(StoreUnavailable, match="canceling statement due to statement timeout"):
            await store.claim("acme", kinds=None, limit=500, lease=LEASE)
