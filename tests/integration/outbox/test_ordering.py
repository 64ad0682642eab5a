"""Strict order per key where several sessions meet, on the real outbox."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, PostgresBench, claim, ids
from tickkeeper.outbox import Claim, Failure, NewRow, PostgresOutbox, Settled, enqueue, enqueue_many, postgres_claim

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture(autouse=True)
def _look_after_keys_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_claim, "_CHECK_EVERY", 0.0)


async def count(connection: Connection, table: str) -> int:
    cursor = await connection.execute(f"SELECT count(*) FROM tickkeeper.{table}".encode())
    (number,) = await cursor.fetchone() or (0,)
    return int(number)


async def waits_for_a_lock(connection: Connection, session: Connection) -> None:
    """Until that session waits for somebody."""
    async with asyncio.timeout(20):
        while True:
            cursor = await connection.execute(
                "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [session.info.backend_pid]
            )
            if await cursor.fetchone() == (True,):
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("before", [0, 1])
async def test_c9_with_a_key_the_second_transaction_waits_for_the_first(
    postgres: PostgresBench, connection: Connection, dsn: str, before: int
) -> None:
    """Whether the key is new or has rows."""
    there = [(await postgres.enqueue(ordering_key="k")).id for _ in range(before)]
    async with await psycopg.AsyncConnection.connect(dsn) as a, await psycopg.AsyncConnection.connect(dsn) as b:
        first = await enqueue(a, "acme", "mail", "a", ordering_key="k")
        waiting = asyncio.create_task(enqueue(b, "acme", "mail", "b", ordering_key="k"))
        await waits_for_a_lock(connection, b)
        taken = await claim(postgres)
        assert ids(taken) == there
        await postgres.store.ack(taken.lease_id, there)
        await a.commit()
        second = await waiting
        await b.commit()
        assert first.id < second.id
        assert ids(await claim(postgres)) == [first.id, second.id]


async def test_c9_a_producer_that_rolls_back_leaves_its_place_to_the_next(postgres: PostgresBench, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as a:
        await enqueue(a, "acme", "mail", "a", ordering_key="k")
        await a.rollback()
    row = await postgres.enqueue(ordering_key="k")
    assert ids(await claim(postgres)) == [row.id]


async def test_the_gap_between_the_end_of_a_run_and_the_next_row(
    postgres: PostgresBench, connection: Connection, dsn: str
) -> None:
    """A producer has seen the last row of a run and put its own behind it, while an ack takes the run out."""
    last = await postgres.enqueue(ordering_key="k")
    taken = await claim(postgres)
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        behind = await enqueue(producer, "acme", "mail", 1, ordering_key="k")
        # Nobody waits for the producer, however long it takes.
        assert await postgres.store.ack(taken.lease_id, [last.id]) == Settled(1)
        assert ids(await claim(postgres)) == []
        assert await count(connection, "outbox_key_check") == 1
        await producer.commit()
    assert ids(await claim(postgres)) == [behind.id]
    assert await count(connection, "outbox_key_check") == 0


async def test_the_gap_where_the_producer_commits_between_two_looks_of_the_ack(
    postgres: PostgresBench, connection: Connection, dsn: str
) -> None:
    """An ack that began before the producer committed, and ends after."""
    first, last = [(await postgres.enqueue(ordering_key="k")).id for _ in range(2)]
    taken = await claim(postgres)
    async with (
        await psycopg.AsyncConnection.connect(dsn) as holder,
        await psycopg.AsyncConnection.connect(dsn) as producer,
    ):
        await holder.execute("SELECT FROM tickkeeper.outbox WHERE id = %s FOR UPDATE", [last])
        acking = asyncio.create_task(postgres.store.ack(taken.lease_id, [first, last]))
        await asyncio.sleep(0)
        behind = await enqueue(producer, "acme", "mail", 1, ordering_key="k")
        await producer.commit()
        await holder.rollback()
        assert await acking == Settled(2)
    assert ids(await claim(postgres)) == [behind.id]


async def test_keys_at_rest_leave_nothing_behind(postgres: PostgresBench, connection: Connection) -> None:
    for number in range(20):
        await postgres.enqueue(ordering_key=f"k{number % 7}")
    await postgres.enqueue(ordering_key="k0", dedup_key="d")
    await postgres.enqueue(ordering_key="other", dedup_key="d")
    assert await count(connection, "outbox_key") == 8
    while (taken := await claim(postgres)).rows:
        await postgres.store.ack(taken.lease_id, ids(taken))
    for table in ("outbox", "outbox_key", "outbox_key_check"):
        assert await count(connection, table) == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_producer_whose_view_is_old(postgres: PostgresBench, dsn: str, level: str) -> None:
    """It still sees the row that has been delivered, and puts its own behind it."""
    gone = await postgres.enqueue(ordering_key="k")
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        await producer.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        await producer.execute("SELECT 1 FROM pg_class")
        taken = await claim(postgres)
        await postgres.store.ack(taken.lease_id, [gone.id])
        assert ids(await claim(postgres)) == []
        try:
            row = await enqueue(producer, "acme", "mail", 1, ordering_key="k")
            await producer.commit()
        except psycopg.errors.SerializationFailure:
            await producer.rollback()
            row = await enqueue(producer, "acme", "mail", 1, ordering_key="k")
            await producer.commit()
    assert ids(await claim(postgres)) == [row.id]


async def test_a_producer_that_holds_the_next_row_by_its_dedup_key(
    postgres: PostgresBench, connection: Connection, dsn: str
) -> None:
    first = await postgres.enqueue(ordering_key="k")
    second = await postgres.enqueue(ordering_key="k", dedup_key="d")
    third = await postgres.enqueue(ordering_key="k")
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        await enqueue(producer, "acme", "mail", 2, dedup_key="d", ordering_key="k")
        taken = await claim(postgres)
        assert ids(taken) == [first.id]
        assert await postgres.store.ack(taken.lease_id, [first.id]) == Settled(1)
        assert ids(await claim(postgres)) == []
        await producer.commit()
    assert ids(await claim(postgres)) == [second.id, third.id]


async def test_whoever_deletes_or_puts_off_the_first_row_keeps_the_order(
    postgres: PostgresBench, connection: Connection
) -> None:
    """Somebody's own statements, as those of a worker of the former release are."""
    rows = [(await postgres.enqueue(ordering_key="k")).id for _ in range(3)]
    await connection.execute("DELETE FROM tickkeeper.outbox WHERE id = %s", rows[:1])
    taken = await claim(postgres, limit=1)
    assert ids(taken) == rows[1:2]
    await connection.execute(
        "UPDATE tickkeeper.outbox SET lease_id = NULL, lease_until = NULL, available_at = now() + interval '1 minute' "
        "WHERE id = %s",
        rows[1:2],
    )
    assert ids(await claim(postgres)) == []
    await connection.execute("DELETE FROM tickkeeper.outbox WHERE id = %s", rows[1:2])
    assert ids(await claim(postgres)) == rows[2:]


async def test_a_bulk_of_rows_in_one_transaction_is_no_harder_than_its_rows(dsn: str, connection: Connection) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        await enqueue_many(producer, [NewRow("acme", "mail", n, ordering_key="k") for n in range(5_000)])
        # Only locked: no versions of the key's row pile up that each further row would have to walk through.
        cursor = await producer.execute("SELECT pg_relation_size('tickkeeper.outbox_key')")
        assert await cursor.fetchone() == (8192,)
        await producer.rollback()


class Crowd:
    """Producers and workers over a few keys, all with faults; what they did is kept."""

    #: whether each row is acked before the next of its batch is handled
    one_by_one = False

    def __init__(self, dsn: str, connection: Connection, seed: int) -> None:
        self.dsn = dsn
        self.connection = connection
        self.chance = random.Random(seed)
        self.produced: dict[str | None, list[Any]] = defaultdict(list)
        self.handled: dict[str | None, list[Any]] = defaultdict(list)
        self.busy: set[str] = set()
        self.producing = 0

    async def play(self) -> None:
        """Six producers and three workers of two processes, until every row is delivered."""
        async with (
            PostgresOutbox(self.dsn) as one,
            PostgresOutbox(self.dsn) as two,
            asyncio.timeout(100),
            asyncio.TaskGroup() as all_,
        ):
            for _ in range(6):
                all_.create_task(self.produce())
            await asyncio.sleep(0)  # they have begun
            for store in (one, one, two):
                all_.create_task(self.work(store))
            all_.create_task(self.look_after(one))

    async def look_after(self, store: PostgresOutbox) -> None:
        """What somebody does meanwhile."""

    async def produce(self) -> None:
        self.producing += 1
        async with await psycopg.AsyncConnection.connect(self.dsn) as own:
            for number in range(60):
                key = self.chance.choice(["hot", "hot", "a", "b", None])
                sent = await enqueue(own, "acme", "mail", number, ordering_key=key)
                await asyncio.sleep(self.chance.random() * 0.004)
                if self.chance.random() < 0.1:
                    await own.rollback()
                else:
                    await own.commit()
                    self.produced[key].append(sent.id)
        self.producing -= 1

    async def work(self, store: PostgresOutbox) -> None:
        while await self.going_on():
            taken = await store.claim("acme", kinds=None, limit=self.chance.randint(1, 9), lease=timedelta(minutes=1))
            if not taken.rows:
                await asyncio.sleep(0.01)
            elif self.chance.random() < 0.03:  # it dies, and with it what it has claimed; time passes
                await self.connection.execute(
                    "UPDATE tickkeeper.outbox SET lease_until = now() WHERE lease_id = %s", [taken.lease_id]
                )
            else:
                await self.handle(store, taken)

    async def going_on(self) -> bool:
        return bool(self.producing or await count(self.connection, "outbox"))

    def outcome(self, row: int) -> Failure | None:
        return Failure(row, "no", after=timedelta(milliseconds=20)) if self.chance.random() < 0.03 else None

    async def handle(self, store: PostgresOutbox, taken: Claim) -> None:
        keys = {row.ordering_key for row in taken.rows if row.ordering_key}
        assert not keys & self.busy, "a key is with two workers"
        self.busy |= keys
        stopped: set[str | None] = set()
        failed = []
        done = []
        for place, row in enumerate(taken.rows):
            await asyncio.sleep(0)
            if row.ordering_key in stopped:
                continue
            if (failure := self.outcome(row.id)) is not None:
                failed.append(failure)
                stopped |= {row.ordering_key} - {None}
            else:
                self.handled[row.ordering_key].append(row.id)
                if not self.one_by_one:
                    done.append(row.id)
                    continue
                if row.ordering_key not in {each.ordering_key for each in taken.rows[place + 1 :]}:
                    self.busy -= keys & {row.ordering_key}
                    keys -= {row.ordering_key}
                assert await store.ack(taken.lease_id, [row.id]) == Settled(1)
        self.busy -= keys
        writes = [store.ack(taken.lease_id, done), store.fail(taken.lease_id, failed)]
        for settled in await asyncio.gather(*self.chance.sample(writes, 2)):
            assert settled.fenced == 0


def all_of(rows: Mapping[str | None, list[Any]]) -> dict[str | None, list[Any]]:
    """In one order, each as often as it is there."""
    return {key: sorted(each) for key, each in rows.items()}


async def test_workers_that_fail_and_die_and_producers_keep_the_order(dsn: str, connection: Connection) -> None:
    """Every row is delivered once, and of each key in the order of its commits."""
    crowd = Crowd(dsn, connection, seed=7)
    await crowd.play()
    assert all_of(crowd.handled) == all_of(crowd.produced)
    for key in ("hot", "a", "b"):
        assert crowd.handled[key] == sorted(crowd.handled[key])
    for table in ("outbox_key", "outbox_key_check"):
        assert await count(connection, table) == 0


async def test_c17_where_a_run_takes_too_long_its_first_row_comes_alone(dsn: str, connection: Connection) -> None:
    rows = [(await enqueue(connection, "acme", "mail", n, ordering_key="k")).id for n in range(3)]
    await connection.execute(
        "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF old.due_at IS NOT NULL AND new.due_at IS NOT NULL THEN PERFORM pg_sleep(30); END IF; RETURN new; END $$"
    )
    await connection.execute(
        "CREATE TRIGGER slow BEFORE UPDATE ON tickkeeper.outbox FOR EACH ROW EXECUTE FUNCTION public.slow()"
    )
    await connection.execute(f"ALTER DATABASE {dsn.rpartition('/')[2]} SET statement_timeout = '1s'".encode())
    async with PostgresOutbox(dsn) as store:
        for row in rows:
            taken = await store.claim("acme", kinds=None, limit=9, lease=LEASE)
            assert (ids(taken), taken.rows[0].attempts) == ([row], 1)
            assert await store.ack(taken.lease_id, ids(taken)) == Settled(1)
