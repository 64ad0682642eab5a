"""Order per key while somebody looks after the outbox: replay, purge, cancel and pause beside a run under way.

The windows are those of statements in two sessions; ``DELETE`` in an open transaction is what an ack, a burial and a
cancellation are in the moment before they commit.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, PostgresBench, claim, ids
from tests.integration.outbox.test_ordering import Crowd, all_of, count
from tickkeeper.outbox import (
    Claim,
    Failure,
    PostgresOutbox,
    Replayed,
    Settled,
    enqueue,
    postgres_claim,
    postgres_dead,
)
from tickkeeper.outbox.postgres_claim import PostgresClaims
from tickkeeper.outbox.postgres_dead import ReplayIncomplete
from tickkeeper.outbox.queries import queries

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture(autouse=True)
def _look_after_keys_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_claim, "_CHECK_EVERY", 0.0)


@asynccontextmanager
async def leaving(dsn: str, *rows: int) -> AsyncIterator[None]:
    """Rows that a transaction is about to take out; at the end it commits."""
    async with await psycopg.AsyncConnection.connect(dsn) as session:
        await session.execute("DELETE FROM tickkeeper.outbox WHERE id = ANY (%s)", [list(rows)])
        yield


async def somebody_waits_for_a_lock(connection: Connection) -> None:
    async with asyncio.timeout(20):
        while True:
            cursor = await connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if await cursor.fetchone() != (0,):
                return
            await asyncio.sleep(0.02)


async def fill(bench: PostgresBench, number: int, **fields: Any) -> list[int]:
    return [(await bench.enqueue(ordering_key="k", **fields)).id for _ in range(number)]


async def bury(bench: PostgresBench, *rows: int) -> None:
    """Let the first rows of the key die."""
    for row in rows:
        run = await claim(bench, limit=1)
        assert ids(run) == [row]
        await bench.store.fail(run.lease_id, [Failure(row, "no", dead=True)])


async def replay(bench: PostgresBench, *rows: int) -> None:
    assert (await bench.store.dead_letters.replay(ids=rows)).replayed == len(rows)


async def straddling(bench: PostgresBench) -> tuple[list[int], Claim]:
    """A worker has the rows 0, 2 and 3 of five, and row 1 was replayed meanwhile."""
    rows = await fill(bench, 5)
    await bury(bench, *rows[:2])
    await replay(bench, rows[0])
    run = await claim(bench, limit=3)
    assert ids(run) == [rows[0], *rows[2:4]]
    await replay(bench, rows[1])
    return rows, run


async def test_a_row_is_replayed_between_the_two_statements_of_a_claim(
    postgres: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = await fill(postgres, 5)
    await bury(postgres, *rows[:2])
    await replay(postgres, rows[0])
    behind = PostgresClaims._behind

    async def after_a_replay(*given: Any) -> Any:
        monkeypatch.setattr(PostgresClaims, "_behind", behind)
        await replay(postgres, rows[1])
        return await behind(*given)

    monkeypatch.setattr(PostgresClaims, "_behind", after_a_replay)
    run = await claim(postgres, limit=3)
    assert ids(run) == rows[:3]
    assert ids(await claim(postgres)) == []
    await postgres.store.ack(run.lease_id, rows[:3])
    assert ids(await claim(postgres)) == rows[3:]


async def test_a_run_whose_first_rows_leave_by_two_acks_at_once_goes_on(postgres: PostgresBench, dsn: str) -> None:
    rows, run = await straddling(postgres)
    async with leaving(dsn, rows[2]):
        assert await postgres.store.ack(run.lease_id, rows[:1]) == Settled(1)
        assert ids(await claim(postgres)) == []
    for _ in range(3):
        assert ids(await claim(postgres)) == []
    assert await postgres.store.ack(run.lease_id, rows[3:4]) == Settled(1)
    assert ids(await claim(postgres)) == [rows[1], rows[4]]


async def test_a_run_that_is_lost_with_a_replayed_row_in_it_comes_again_in_the_order_of_its_ids(
    postgres: PostgresBench,
) -> None:
    rows, run = await straddling(postgres)
    assert await postgres.store.ack(run.lease_id, rows[:1]) == Settled(1)
    await postgres.elapse(LEASE)
    seen = []
    while (taken := await claim(postgres)).rows:
        assert taken.rows[0].id not in seen
        seen += ids(taken)
        await postgres.store.ack(taken.lease_id, ids(taken))
    # Row 2 was with the lost worker and is tried again first: it may have had its effect.
    assert seen == [rows[2], rows[1], *rows[3:]]


async def test_what_is_cancelled_out_of_a_run_or_next_to_it_changes_nothing_else(postgres: PostgresBench) -> None:
    rows, run = await straddling(postgres)
    cancelled = await postgres.store.cancel("acme", ids=rows)
    assert (cancelled.cancelled, cancelled.held) == (2, 3)
    more = await fill(postgres, 1)
    for row in ids(run):
        assert ids(await claim(postgres)) == []
        assert await postgres.store.ack(run.lease_id, [row]) == Settled(1)
    assert ids(await claim(postgres)) == more


async def test_cancelling_does_not_wait_for_a_handlers_transaction(postgres: PostgresBench) -> None:
    rows = await fill(postgres, 3)
    run = await claim(postgres, limit=2)
    async with asyncio.timeout(10), postgres.store.transaction(run.lease_id, rows[:2]) as work:
        cancelled = await postgres.store.cancel("acme", ids=rows)
        assert (cancelled.cancelled, cancelled.held) == (1, 2)
        work.done(*rows[:2])
    assert ids(await claim(postgres)) == []


async def test_a_row_that_is_claimed_while_it_is_cancelled_stays(
    postgres: PostgresBench, connection: Connection, dsn: str
) -> None:
    rows = await fill(postgres, 2)
    async with await psycopg.AsyncConnection.connect(dsn) as claiming:
        await claiming.execute(
            "UPDATE tickkeeper.outbox SET lease_id = gen_random_uuid(), lease_until = now() + interval '1 minute' "
            "WHERE id = %s",
            rows[:1],
        )
        cancelling = asyncio.create_task(postgres.store.cancel("acme", ids=rows))
        await somebody_waits_for_a_lock(connection)
        await claiming.commit()
    cancelled = await cancelling
    assert (cancelled.cancelled, cancelled.held) == (1, 1)
    shown = await postgres.store.show(rows[0])
    assert shown is not None
    assert shown.state == "leased"


async def test_a_pause_and_a_purge_leave_a_run_as_it_is(postgres: PostgresBench) -> None:
    rows = await fill(postgres, 5)
    await bury(postgres, *rows[:2])
    await replay(postgres, rows[0])
    run = await claim(postgres, limit=3)
    await postgres.store.pause(kind="mail")
    assert await postgres.store.dead_letters.purge(older_than=timedelta()) == 1
    for row in ids(run):
        assert ids(await claim(postgres)) == []
        assert await postgres.store.ack(run.lease_id, [row]) == Settled(1)
    assert ids(await claim(postgres)) == []
    await postgres.store.resume(kind="mail")
    assert ids(await claim(postgres)) == rows[4:]


@pytest.mark.parametrize("paused", ["first", "behind"])
async def test_a_key_waits_for_what_is_paused_in_it(postgres: PostgresBench, paused: str) -> None:
    kinds = ["other", "mail"] if paused == "first" else ["mail", "other", "mail"]
    rows = [(await postgres.enqueue(kind, ordering_key="k")).id for kind in kinds]
    run = await claim(postgres, limit=1)
    await postgres.store.pause(kind="other")
    await postgres.store.release(run.lease_id, ids(run))
    run = await claim(postgres)
    assert ids(run) == ([] if paused == "first" else rows[:1])
    await postgres.store.ack(run.lease_id, ids(run))
    assert ids(await claim(postgres)) == []
    await postgres.store.resume(kind="other")
    assert ids(await claim(postgres)) == (rows if paused == "first" else rows[1:])


async def test_rows_are_enqueued_between_the_end_of_a_run_and_the_release_of_its_rest(
    postgres: PostgresBench, dsn: str
) -> None:
    rows = await fill(postgres, 3)
    run = await claim(postgres)
    async with leaving(dsn, *rows[:2]):
        more = await fill(postgres, 1)
        assert ids(await claim(postgres)) == []
    more += await fill(postgres, 1)
    assert ids(await claim(postgres)) == []
    assert await postgres.store.release(run.lease_id, rows[2:]) == Settled(1)
    more += await fill(postgres, 1)
    assert ids(await claim(postgres)) == [*rows[2:], *more]


async def test_a_row_is_replayed_while_the_last_one_of_its_key_leaves(postgres: PostgresBench, dsn: str) -> None:
    """Neither of the two sees the other, and the key is looked after before the second commits."""
    first, second = await fill(postgres, 2)
    await bury(postgres, first, second)
    await replay(postgres, first)
    assert ids(await claim(postgres)) == [first]
    given: dict[str, Any] = dict.fromkeys(("tenant_id", "kind", "above"))
    given |= {"ids": [second], "due": datetime.now(UTC), "limit": 9, "hold": False, "patience": "100ms"}
    given |= {"held_tenants": [], "held_keys": []}
    async with await psycopg.AsyncConnection.connect(dsn) as replaying:
        await replaying.execute(queries("tickkeeper")["replay"], given)
        async with leaving(dsn, first):
            await replaying.commit()
            assert ids(await claim(postgres)) == []
    assert ids(await claim(postgres)) == [second]


async def test_a_block_is_purged_while_the_row_before_it_leaves(dsn: str, connection: Connection) -> None:
    """The row's transaction has seen the block, and the key is looked after before it commits."""
    async with PostgresOutbox(dsn, dead_heads="block") as store:
        bench = PostgresBench(store, connection)
        rows = await fill(bench, 3)
        run = await claim(bench)
        await store.fail(run.lease_id, [Failure(rows[1], "no", dead=True)])
        async with leaving(dsn, rows[0]):
            assert await store.dead_letters.purge(older_than=timedelta()) == 1
            assert ids(await claim(bench)) == []
        assert ids(await claim(bench)) == rows[2:]


@asynccontextmanager
async def many_busy_keys(bench: PostgresBench, dsn: str, number: int) -> AsyncIterator[Connection]:
    """Keys that were noted, and wait for the transaction of one producer, which is this connection's."""
    for key in range(number):
        await bench.enqueue(ordering_key=f"busy-{key}")
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        for key in range(number):
            await enqueue(producer, "acme", "mail", None, ordering_key=f"busy-{key}")
        run = await claim(bench)
        assert await bench.store.ack(run.lease_id, ids(run)) == Settled(number)
        assert await count(bench.connection, "outbox_key_check") == number
        yield producer


@pytest.mark.parametrize("seconds", [0.25, 0.0])  # at 0 a statement looks after one key
async def test_keys_that_wait_for_a_producer_do_not_keep_others_from_being_looked_after(
    postgres: PostgresBench, dsn: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(postgres_claim, "_MAX_CHECKS", 2)
    monkeypatch.setattr(postgres_claim, "_CHECK_SECONDS", seconds)
    async with many_busy_keys(postgres, dsn, 12) as producer:
        async with await psycopg.AsyncConnection.connect(dsn) as strict:
            await strict.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            other = await enqueue(strict, "acme", "mail", None, ordering_key="other")
        seen: list[int] = []
        for _ in range(30):
            seen += ids(await claim(postgres))
        assert seen == [other.id]
        await producer.commit()
        # The walk begins anew with the oldest ones.
        for _ in range(60):
            run = await claim(postgres)
            seen += ids(run)
            await postgres.store.ack(run.lease_id, ids(run))
        assert len(seen) == 13
    assert await count(postgres.connection, "outbox_key_check") == 0


async def test_a_replay_looks_after_its_keys_whatever_waits_before_them(
    postgres: PostgresBench, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_claim, "_MAX_CHECKS", 2)
    rows = await fill(postgres, 1)
    await bury(postgres, *rows)
    async with many_busy_keys(postgres, dsn, 3):
        await replay(postgres, *rows)
        monkeypatch.setattr(PostgresClaims, "_look_after_keys", _looks_after_nothing)
        assert ids(await claim(postgres)) == rows


async def _looks_after_nothing(*_: Any) -> bool:
    return False


@asynccontextmanager
async def dead_beside_a_producer(bench: PostgresBench, dsn: str) -> AsyncIterator[tuple[list[int], Connection]]:
    """Dead rows of the keys "k", "j", none, and "k", while a producer's transaction has made the key "k"."""
    rows = [(await bench.enqueue(ordering_key=key)).id for key in ("k", "j", None, "k")]
    while (run := await claim(bench)).rows:
        await bench.store.fail(run.lease_id, [Failure(row.id, "no", dead=True) for row in run.rows])
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        await enqueue(producer, "acme", "mail", None, ordering_key="k")
        yield rows, producer


@pytest.mark.parametrize("portion", [1, 2, 500])
async def test_a_replay_names_the_rows_that_a_producer_holds_up_and_replays_the_others(
    postgres: PostgresBench, dsn: str, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(postgres_dead, "_BATCH", portion)
    monkeypatch.setattr(postgres_dead, "_IN_VAIN", 0.3)
    async with dead_beside_a_producer(postgres, dsn) as (rows, producer):
        with pytest.raises(ReplayIncomplete, match="replayed 2; 2 stay dead, since a producer's open") as incomplete:
            await postgres.store.dead_letters.replay()
        assert (incomplete.value.done, incomplete.value.waiting) == (Replayed(2), (rows[0], rows[3]))
        assert set(ids(await claim(postgres))) == set(rows[1:3])
        await producer.commit()
    assert await postgres.store.dead_letters.replay() == Replayed(2)
    run = await claim(postgres)
    assert ids(run)[:2] == [rows[0], rows[3]]
    assert len(run.rows) == 3


async def test_a_replay_waits_for_a_producer_that_ends_its_transaction(
    postgres: PostgresBench, connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_dead, "_IN_VAIN", 20.0)
    async with dead_beside_a_producer(postgres, dsn) as (rows, producer):
        replaying = asyncio.create_task(postgres.store.dead_letters.replay())
        await somebody_waits_for_a_lock(connection)
        assert (await postgres.store.show(rows[0])) is not None
        await producer.commit()
        assert await replaying == Replayed(4)
    assert [row for row in ids(await claim(postgres)) if row in (rows[0], rows[3])] == [rows[0], rows[3]]


async def test_a_replay_waits_for_an_open_transaction_with_a_dedup_key(
    postgres: PostgresBench, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_dead, "_IN_VAIN", 0.0)
    rows = await fill(postgres, 1, dedup_key="d") + await fill(postgres, 1)
    await bury(postgres, *rows)
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        await enqueue(producer, "acme", "mail", None, dedup_key="d")
        with pytest.raises(ReplayIncomplete) as incomplete:
            await postgres.store.dead_letters.replay()
        assert incomplete.value.waiting == tuple(rows), "the second must not go before the first"
        await producer.rollback()
    await replay(postgres, *rows)
    assert ids(await claim(postgres)) == rows


async def test_a_producer_is_not_ended_as_a_deadlock_with_a_replay(
    postgres: PostgresBench, connection: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_dead, "_IN_VAIN", 20.0)
    for key in ("a", "b"):
        await postgres.enqueue(ordering_key=key)
    run = await claim(postgres)
    await postgres.store.fail(run.lease_id, [Failure(row.id, "no", dead=True) for row in run.rows])
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        # Of two that wait for one another the first to ask is ended: this one asks before the replay would.
        await producer.execute("SET deadlock_timeout = '500ms'")
        await enqueue(producer, "acme", "mail", None, ordering_key="b")
        replaying = asyncio.create_task(postgres.store.dead_letters.replay())
        await somebody_waits_for_a_lock(connection)
        await enqueue(producer, "acme", "mail", None, ordering_key="a")
        await producer.commit()
    assert await replaying == Replayed(2)


class LookedAfter(Crowd):
    """The same, where rows die too, and somebody replays them and pauses all the while."""

    one_by_one = True

    def __init__(self, dsn: str, connection: Connection, seed: int) -> None:
        super().__init__(dsn, connection, seed)
        self.died: set[int] = set()

    async def look_after(self, store: PostgresOutbox) -> None:
        letters = store.dead_letters
        while await self.going_on():
            dead = [row.id for row in await letters.latest()]
            self.died.update(dead)
            # Few at a time, so that one comes between the rows of a run which another one leads.
            await letters.replay(ids=self.chance.sample(dead, min(len(dead), 2)))
            if self.chance.random() < 0.1:
                await store.pause(kind="mail")
                await asyncio.sleep(0.005)
                await store.resume(kind="mail")

    async def going_on(self) -> bool:
        return await super().going_on() or await count(self.connection, "outbox_dead") > 0

    def outcome(self, row: int) -> Failure | None:
        if self.chance.random() < 0.3:
            return Failure(row, "no", dead=True)
        return super().outcome(row)


async def test_a_replay_of_many_rows_of_a_key_keeps_their_order(
    postgres: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_dead, "_BATCH", 2)
    rows = await fill(postgres, 5)
    await bury(postgres, *rows)
    letters, handled = postgres.store.dead_letters, []
    query = letters._query

    async def then_drain(name: str, parameters: Mapping[str, Any]) -> list[Any]:
        found = await query(name, parameters)
        # The workers look after keys too, so a portion may be handled before the next one is there.
        while name == "replay" and (run := await claim(postgres)).rows:
            handled.extend(ids(run))
            await postgres.store.ack(run.lease_id, ids(run))
        return found

    monkeypatch.setattr(letters, "_query", then_drain)
    assert await letters.replay() == Replayed(5)
    assert handled == rows


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_key_is_never_with_two_workers_while_rows_die_and_are_replayed(
    dsn: str, connection: Connection, seed: int
) -> None:
    """Every row is delivered once, and of each key those that never died in the order of their commits."""
    crowd = LookedAfter(dsn, connection, seed)
    await crowd.play()
    assert all_of(crowd.handled) == all_of(crowd.produced)
    assert crowd.died
    for key in ("hot", "a", "b"):
        lived = [row for row in crowd.handled[key] if row not in crowd.died]
        assert lived == sorted(lived)
    for table in ("outbox_key", "outbox_key_check"):
        assert await count(connection, table) == 0
