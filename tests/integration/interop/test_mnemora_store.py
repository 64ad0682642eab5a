"""The store over mnemora's table, by mnemora's rules; a peer is played by the statements of @mnemora/postgres 1.0.0."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.integration.interop.mnemora_table import make_table, put
from tests.integration.worker.conftest import until
from tickkeeper.outbox import Failure, SchemaError, Snooze, StoreUnavailable
from tickkeeper.outbox.mnemora import MnemoraOutbox

LEASE = timedelta(minutes=30)

# The peer's claim, with its own clock in %(now)s.
PEER_CLAIMS = """
WITH claimable AS (
    SELECT id FROM outbox WHERE tenant_id = 'acme' AND completed_at IS NULL AND failed_at IS NULL
       AND available_at <= %(now)s AND (claimed_at IS NULL OR claimed_at <= %(now)s - %(lease)s)
     ORDER BY available_at ASC LIMIT 50 FOR UPDATE SKIP LOCKED)
UPDATE outbox o SET claimed_at = %(now)s, claimed_by = 'peer', attempts = attempts + 1
  FROM claimable c WHERE o.id = c.id RETURNING o.id, o.attempts
"""
PEER_COMPLETES = "UPDATE outbox SET completed_at = now() WHERE id = %s AND attempts = %s RETURNING id"


@pytest.fixture
async def store(database: str) -> AsyncIterator[MnemoraOutbox]:
    make_table(database)
    async with MnemoraOutbox(database) as store:
        yield store


@pytest.fixture
def table(database: str) -> Any:
    """Runs a statement and returns its rows as dicts; without one: all rows, in the order of their numbers."""

    def run(statement: str = "SELECT * FROM outbox ORDER BY (payload ->> 'memoryId')::int", **values: Any) -> Any:
        with psycopg.connect(database, row_factory=dict_row) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else None

    return run


async def _claim(store: MnemoraOutbox, *, limit: int = 100, lease: timedelta = LEASE, **options: Any) -> Any:
    return await store.claim("acme", kinds=options.pop("kinds", ["embed"]), limit=limit, lease=lease)


def _numbers(claim: Any) -> list[int]:
    return [int(row.payload["memoryId"]) for row in claim.rows]


async def test_due_rows_of_the_tenant_and_its_kinds_oldest_first(store, database, table):
    put(database, range(3))
    put(database, [7], kind="extract")
    put(database, [8], tenant="globex")
    table("UPDATE outbox SET available_at = now() - (10 - (payload ->> 'memoryId')::int) * interval '1 s'")
    table("UPDATE outbox SET available_at = now() + interval '1 h' WHERE payload ->> 'memoryId' = '1'")
    claim = await _claim(store)
    assert _numbers(claim) == [0, 2]
    assert not claim.alone
    [row, _] = claim.rows
    assert (row.tenant_id, row.kind, row.headers, row.attempts, row.suspect) == ("acme", "embed", {}, 1, False)
    assert isinstance(row.id, UUID)
    assert not (await _claim(store)).rows
    assert _numbers(await _claim(store, kinds=None)) == [7]
    assert set(await store.kinds("acme")) == {"embed", "extract"}


async def test_an_ack_completes_and_a_second_one_is_fenced(store, database, table):
    put(database, range(2))
    claim = await _claim(store)
    ids = [row.id for row in claim.rows]
    assert (await store.ack(claim.lease_id, ids)).changed == 2
    again = await store.ack(claim.lease_id, ids)
    assert (again.changed, again.fenced, set(again.lost)) == (0, 2, set(ids))
    assert all(row["completed_at"] and not row["failed_at"] for row in table())


async def test_a_failure_is_final_and_never_both(store, database, table):
    put(database, range(2))
    claim = await _claim(store)
    first, second = (row.id for row in claim.rows)
    settled = await store.fail(claim.lease_id, [Failure(first, "a\x00b \ud800"), Failure(second, "no", dead=True)])
    assert (settled.changed, settled.dead, settled.fenced) == (2, 2, 0)
    assert (await store.ack(claim.lease_id, [first])).fenced == 1
    rows = {row["id"]: row for row in table()}
    row, other = rows[first], rows[second]
    assert row["failed_at"]
    assert not row["completed_at"]
    assert "\x00" not in row["last_error"]
    assert row["last_error"].startswith("a")
    assert other["last_error"] == "no"
    assert not (await _claim(store)).rows


async def test_a_completed_row_does_not_fail_as_well(store, database, table):
    put(database, [1])
    claim = await _claim(store)
    await store.ack(claim.lease_id, [claim.rows[0].id])
    assert (await store.fail(claim.lease_id, [Failure(claim.rows[0].id, "late")])).fenced == 1
    assert not table()[0]["failed_at"]


async def test_a_retry_with_a_delay_a_snooze_and_a_release_leave_the_row_open(store, database, table):
    put(database, range(4))
    claim = await _claim(store)
    one, two, three, four = (row.id for row in claim.rows)
    assert (await store.snooze(claim.lease_id, [Snooze(four, datetime.now(UTC) - timedelta(days=1))])).changed == 1
    assert (await store.fail(claim.lease_id, [Failure(one, "busy", after=timedelta(hours=1))])).dead == 0
    until = datetime.now(UTC) + timedelta(hours=2)
    assert (await store.snooze(claim.lease_id, [Snooze(two, until)])).changed == 1
    assert (await store.release(claim.lease_id, [three])).changed == 1
    rows = {row["id"]: row for row in table()}
    assert all(row["claimed_at"] is None and row["failed_at"] is None for row in rows.values())
    assert timedelta(minutes=59) < rows[one]["available_at"] - datetime.now(UTC) < timedelta(minutes=61)
    assert rows[two]["available_at"] == until
    assert rows[four]["available_at"] > datetime.now(UTC) - timedelta(minutes=1)
    again = await _claim(store)
    assert [row.id for row in again.rows] == [three]
    assert again.rows[0].attempts == 2  # never counted down: peers know a claim by its number


async def test_what_a_peer_claimed_again_is_fenced_and_the_peer_may_finish_it(store, database, table):
    put(database, [1])
    claim = await _claim(store)
    ahead = datetime.now(UTC) + timedelta(minutes=40)
    [taken] = table(PEER_CLAIMS, now=ahead, lease=LEASE)
    ids = [claim.rows[0].id]
    for settled in (
        await store.renew(claim.lease_id, ids, LEASE),
        await store.ack(claim.lease_id, ids),
        await store.fail(claim.lease_id, [Failure(ids[0], "late")]),
        await store.snooze(claim.lease_id, [Snooze(ids[0], ahead)]),
        await store.release(claim.lease_id, ids),
    ):
        assert (settled.changed, settled.fenced, settled.lost) == (0, 1, tuple(ids))
    with psycopg.connect(database) as connection:
        assert connection.execute(PEER_COMPLETES, (taken["id"], taken["attempts"])).fetchall()


async def test_a_peers_late_word_on_what_we_claimed_again_changes_nothing(store, database, table):
    put(database, [1])
    [taken] = table(PEER_CLAIMS, now=datetime.now(UTC), lease=LEASE)
    table("UPDATE outbox SET claimed_at = claimed_at - interval '31 min'")
    claim = await _claim(store)
    assert (claim.alone, claim.rows[0].suspect, claim.rows[0].attempts) == (True, True, 2)
    await store.release(claim.lease_id, [claim.rows[0].id])
    with psycopg.connect(database) as connection:
        assert not connection.execute(PEER_COMPLETES, (taken["id"], taken["attempts"])).fetchall()


async def test_the_lease_is_the_claimers_and_counts_by_the_databases_clock(store, database, table):
    put(database, [1])
    await _claim(store)
    assert not (await _claim(store)).rows
    table("UPDATE outbox SET claimed_at = claimed_at - interval '31 min'")
    assert _numbers(await _claim(store)) == [1]
    table("UPDATE outbox SET claimed_at = claimed_at - interval '29 min'")
    assert not (await _claim(store)).rows
    assert _numbers(await _claim(store, lease=timedelta(minutes=28))) == [1]


async def test_a_renewal_holds_a_row_longer(store, database, table):
    put(database, [1])
    claim = await _claim(store)
    table("UPDATE outbox SET claimed_at = claimed_at - interval '29 min'")
    assert (await store.renew(claim.lease_id, [claim.rows[0].id], LEASE)).changed == 1
    assert datetime.now(UTC) - table()[0]["claimed_at"] < timedelta(minutes=1)


async def test_a_row_that_never_ends_comes_alone_and_leaves_the_head_of_the_queue(store, database, table):
    put(database, range(4))
    table("UPDATE outbox SET available_at = now() - (10 - (payload ->> 'memoryId')::int) * interval '1 s'")
    table("UPDATE outbox SET claimed_at = now() - interval '1 h', attempts = 5 WHERE payload ->> 'memoryId' = '0'")
    stuck = await _claim(store)
    assert (_numbers(stuck), stuck.alone) == ([0], True)
    table("UPDATE outbox SET claimed_at = now() - interval '1 h' WHERE payload ->> 'memoryId' = '0'")
    claim = await _claim(store)
    assert (_numbers(claim), claim.alone) == ([1, 2, 3], False)
    assert _numbers(await _claim(store)) == [0]


async def test_claims_at_once_share_without_doubles(store, database):
    put(database, range(300))
    taken = [claim async for claim in _all(store)]
    numbers = sorted(number for claim in taken for number in _numbers(claim))
    assert numbers == list(range(300))


async def _all(store: MnemoraOutbox) -> AsyncIterator[Any]:
    while claims := [each for each in await asyncio.gather(*(_claim(store, limit=20) for _ in range(4))) if each.rows]:
        for each in claims:
            yield each


async def test_how_far_behind_a_tenant_is(store, database, table):
    assert (await store.oldest("acme")).seconds is None
    put(database, range(3))
    table("UPDATE outbox SET available_at = now() - interval '60 s'")
    oldest = await store.oldest("acme")
    assert oldest.ready == 3
    assert oldest.seconds is not None
    assert 59 < oldest.seconds < 90
    await _claim(store)
    assert (await store.oldest("acme")).ready == 0


async def test_a_cancelled_claim_hands_its_rows_back(store, database, table):
    put(database, range(3))
    await store.kinds("acme")
    with psycopg.connect(database) as blocker:
        blocker.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        task = asyncio.create_task(_claim(store))
        await until(lambda: _waiting(blocker))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: all(row["attempts"] == 1 and row["claimed_at"] is None for row in table()))


def _waiting(connection: "psycopg.Connection[Any]") -> bool:
    """Whether somebody waits for a lock."""
    return bool(connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())


async def test_without_the_table_the_remedy_is_named(database):
    async with MnemoraOutbox(database) as store:
        with pytest.raises(SchemaError, match="mnemora-postgres-migrate"):
            await store.oldest("acme")


async def test_a_database_that_is_away_is_unavailable():
    async with MnemoraOutbox("postgresql://app:hunter2@127.0.0.1:1/app", pool_timeout=0.3) as store:
        with pytest.raises(StoreUnavailable) as caught:
            await store.oldest("acme")
    assert "hunter2" not in str(caught.value)


async def test_ids_of_another_store_are_refused(store):
    with pytest.raises(ValueError, match="must be a UUID"):
        await store.ack(uuid4(), [5])


async def test_a_role_that_may_read_and_update_the_table_is_enough(database, postgres_server, table):
    make_table(database)
    put(database, range(5))
    table("CREATE ROLE mnemora_worker LOGIN PASSWORD 'verysecret'")
    table("GRANT USAGE ON SCHEMA public TO mnemora_worker")
    table("GRANT SELECT, UPDATE ON public.outbox TO mnemora_worker")
    name = database.rpartition("/")[2]
    try:
        async with MnemoraOutbox(
            f"postgresql://mnemora_worker:verysecret@127.0.0.1:{postgres_server.port}/{name}"
        ) as store:
            taken = await _claim(store)
            done, failed, later, back, held = [row.id for row in taken.rows]
            assert (await store.ack(taken.lease_id, [done])).changed == 1
            assert (await store.fail(taken.lease_id, [Failure(failed, "no")])).changed == 1
            snooze = Snooze(later, datetime.now(UTC) + timedelta(hours=1))
            assert (await store.snooze(taken.lease_id, [snooze])).changed == 1
            assert (await store.release(taken.lease_id, [back])).changed == 1
            assert (await store.renew(taken.lease_id, [held], LEASE)).changed == 1
            assert await store.kinds("acme") == ("embed",)
            assert (await store.oldest("acme")).ready == 1
    finally:
        table("DROP OWNED BY mnemora_worker")
        table("DROP ROLE mnemora_worker")
