"""Samples of a real outbox: right where it is small, bounded where it is large."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import PostgresBench
from tickkeeper.outbox import Failure, PostgresOutbox
from tickkeeper.outbox import sampler as sampler_module
from tickkeeper.outbox.looking import Look, OutboxLooks
from tickkeeper.outbox.sampler import COUNTED, Holder, OutboxSampler, Sample

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)


@pytest.fixture
async def sampler(dsn: str) -> AsyncIterator[OutboxSampler]:
    async with OutboxSampler(dsn) as sampler:
        yield sampler


async def taken(sampler: OutboxSampler) -> Sample:
    sample = await sampler.sample()
    assert sample is not None
    return sample


async def fetched(connection: "psycopg.AsyncConnection[Any]", query: str) -> Any:
    return await (await connection.execute(query.encode())).fetchone()


async def fill(connection: "psycopg.AsyncConnection[Any]", rows: str) -> None:
    await connection.execute(
        "INSERT INTO tickkeeper.outbox (tenant_id, kind, payload, payload_bytes, headers, max_attempts, available_at, "
        f"created_at) SELECT tenant, 'mail', '1', 1, '{{}}', 20, now() + due, now() FROM ({rows}) r".encode()
    )


async def test_an_empty_outbox(sampler: OutboxSampler) -> None:
    sample = await taken(sampler)
    assert sample == Sample(
        taken_at=sample.taken_at, took=sample.took, dead_tuples=sample.dead_tuples, holders=sample.holders
    )
    assert abs(await sampler.now() - sample.taken_at) < 60


async def test_every_state_is_counted(sampler: OutboxSampler, postgres: PostgresBench) -> None:
    store: PostgresOutbox = postgres.store  # type: ignore[assignment]
    await postgres.enqueue(tenant="dying")
    gone = await store.claim("dying", kinds=None, limit=9, lease=LEASE)
    await store.fail(gone.lease_id, [Failure(gone.rows[0].id, "no", dead=True)])
    for _ in range(2):
        await postgres.enqueue(tenant="leased")
    await store.claim("leased", kinds=None, limit=9, lease=timedelta(hours=2))
    await postgres.enqueue(tenant="left")
    await store.claim("left", kinds=None, limit=9, lease=timedelta(minutes=5))
    await postgres.enqueue(tenant="ready")
    await postgres.elapse(HOUR)  # the lease of two hours stands
    await postgres.enqueue(tenant="later", delay=HOUR)
    for _ in range(3):
        await postgres.enqueue(tenant="keyed", ordering_key="k")
    sample = await taken(sampler)
    assert (sample.ready, sample.leased, sample.scheduled, sample.behind, sample.dead) == (3, 2, 1, 2, 1)
    assert sample.exact
    assert sample.every_tenant
    assert sample.tenants == ("keyed", "later", "leased", "left", "ready")
    assert sample.oldest_due is not None
    assert sample.oldest_created is not None
    assert 3600 <= sample.oldest_due < 3700
    assert 3600 <= sample.oldest_created < 3700
    assert sample.expired == 1
    assert sample.oldest_expired is not None
    assert 3200 < sample.oldest_expired < 3400


async def test_what_waits_for_its_time_is_not_old(sampler: OutboxSampler, postgres: PostgresBench) -> None:
    await postgres.enqueue(delay=3 * HOUR)
    await postgres.elapse(HOUR)
    sample = await taken(sampler)
    assert (sample.scheduled, sample.oldest_due, sample.oldest_created) == (1, None, None)


async def test_a_retry_is_due_anew_and_as_old_as_before(sampler: OutboxSampler, postgres: PostgresBench) -> None:
    await postgres.enqueue()
    await postgres.elapse(HOUR)
    claim = await postgres.store.claim("acme", kinds=None, limit=1, lease=LEASE)
    await postgres.store.fail(claim.lease_id, [Failure(claim.rows[0].id, "no", after=HOUR)])
    sample = await taken(sampler)
    assert (sample.scheduled, sample.oldest_due) == (1, None)
    assert sample.oldest_created is not None
    assert sample.oldest_created >= 3600


async def test_beyond_the_bound_counts_say_at_least(
    sampler: OutboxSampler, postgres: PostgresBench, connection: "psycopg.AsyncConnection[Any]"
) -> None:
    await fill(connection, f"SELECT 'big' AS tenant, interval '-1 min' AS due FROM generate_series(1, {COUNTED})")
    assert (await taken(sampler)).exact  # exactly at the bound
    await fill(connection, "SELECT 'big' AS tenant, interval '-1 min' AS due FROM generate_series(1, 2000)")
    await fill(connection, "SELECT 't' || i AS tenant, interval '1 h' AS due FROM generate_series(1, 500) i")
    await fill(connection, "SELECT 'zz' AS tenant, interval '-1 h' AS due")
    claim = await postgres.store.claim("big", kinds=None, limit=7, lease=LEASE)
    assert len(claim.rows) == 7
    sample = await taken(sampler)
    assert not sample.exact
    assert (sample.ready, sample.leased, sample.scheduled) == (COUNTED - 7, 7, 500)
    assert sample.every_tenant
    assert len(sample.tenants) == 502
    assert sample.oldest_due is not None
    assert 3600 <= sample.oldest_due < 3700


async def test_beyond_the_bound_a_run_is_told_from_what_waits_behind_it(
    sampler: OutboxSampler, postgres: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "COUNTED", 10)
    for _ in range(12):
        await postgres.enqueue(tenant="ready")
    await postgres.enqueue(tenant="later", delay=HOUR)
    for _ in range(9):
        await postgres.enqueue(tenant="keyed", ordering_key="k")
    run = await postgres.store.claim("keyed", kinds=None, limit=5, lease=LEASE)
    assert len(run.rows) == 5
    sample = await taken(sampler)
    assert not sample.exact
    # Ten due rows were counted, of which the first of the key is leased.
    assert (sample.ready, sample.leased, sample.scheduled, sample.behind) == (9, 5, 1, 4)


async def test_of_many_tenants_each_sample_sees_some(
    dsn: str, connection: "psycopg.AsyncConnection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "COUNTED", 100)
    monkeypatch.setattr(sampler_module, "_STEPS", 60)
    await fill(connection, "SELECT 't' || i % 130 AS tenant, interval '1 h' AS due FROM generate_series(1, 390) i")
    await fill(connection, "SELECT 'z' AS tenant, interval '-1 h' AS due FROM generate_series(1, 5)")
    async with OutboxSampler(dsn) as sampler:
        samples = [await taken(sampler) for _ in range(4)]
        assert [len(sample.tenants) for sample in samples] == [60, 120, 131, 131]
        assert [sample.every_tenant for sample in samples] == [False, False, True, True]
        assert len(set(samples[2].tenants)) == 131
        assert [(sample.ready, sample.scheduled) for sample in samples] == [(0, 100), (0, 100), (5, 100), (5, 100)]
        assert samples[1].oldest_due is None
        assert samples[3].oldest_due is not None
        assert 3600 <= samples[3].oldest_due < 3700
        # The first of the second round was seen already; what has changed is told when that is complete.
        await connection.execute("DELETE FROM tickkeeper.outbox WHERE tenant_id = 'z'")
        assert [(await taken(sampler)).ready for _ in range(2)] == [5, 0]
        await connection.execute("DELETE FROM tickkeeper.outbox WHERE tenant_id <> 't1'")
        small = await taken(sampler)
        assert (small.exact, small.tenants, small.scheduled) == (True, ("t1",), 3)
    await fill(connection, "SELECT 't' || i % 130 AS tenant, interval '1 h' AS due FROM generate_series(1, 390) i")
    async with OutboxSampler(dsn) as sampler:
        at_once = await sampler.sample(alone=False)
        assert at_once is not None
        assert (len(at_once.tenants), at_once.every_tenant) == (130, True)


async def test_one_sampler_at_a_time(
    dsn: str, connection: "psycopg.AsyncConnection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, given_back = asyncio.Event(), asyncio.Event()

    async def keep(seconds: float) -> None:
        assert seconds == 3600
        kept.set()
        await given_back.wait()

    async with OutboxSampler(dsn, hold=3600) as first, OutboxSampler(dsn) as second, asyncio.timeout(30):
        with monkeypatch.context() as patch:
            patch.setattr(sampler_module, "_keep_turn", keep)
            holding = asyncio.create_task(first.sample())
            await kept.wait()
            assert await second.sample() is None
            # Whoever has the turn holds no snapshot and no table meanwhile.
            holder = await fetched(
                connection,
                "SELECT a.state, a.backend_xmin, (SELECT count(*) FROM pg_locks r "
                "WHERE r.pid = a.pid AND r.locktype = 'relation') "
                "FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE l.locktype = 'advisory'",
            )
            assert holder == ("idle in transaction", None, 0)
            given_back.set()
            assert await holding is not None
        assert await second.sample() is not None


async def test_a_sample_waits_for_no_lock(sampler: OutboxSampler, dsn: str) -> None:
    """Somebody alters the table: what can be told without it is told, soon."""
    async with await psycopg.AsyncConnection.connect(dsn) as altering:
        await altering.execute("LOCK TABLE tickkeeper.outbox IN ACCESS EXCLUSIVE MODE")
        sample = await taken(sampler)
        assert not sample.exact
        assert not sample.every_tenant
        assert sample.took < 15
    assert (await taken(sampler)).exact


async def test_c11_the_held_horizon_is_seen_and_no_query_text(sampler: OutboxSampler, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, application_name="report") as reader:
        await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await reader.execute("SELECT 'verysecret', count(*) FROM tickkeeper.outbox")
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as busy:
            for _ in range(3):
                await busy.execute("SELECT pg_current_xact_id()")
        (holder,) = [each for each in (await taken(sampler)).holders if each.name == "report"]
        assert holder.pid == reader.info.backend_pid
        assert holder.holder == "session"
        assert holder.transactions >= 3
        assert holder.seconds is not None
        assert "verysecret" not in str(holder)
    assert "report" not in [each.name for each in (await taken(sampler)).holders]


async def test_a_role_without_rights_on_the_statistics_still_sees_the_holder(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as admin:
        await admin.execute("CREATE ROLE sampling LOGIN PASSWORD 'verysecret'")
        try:
            await admin.execute("GRANT USAGE ON SCHEMA tickkeeper TO sampling")
            await admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA tickkeeper TO sampling")
            await admin.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            host, database = re.findall(r"@(.*)/(\w+)$", dsn)[0]
            async with (
                admin.transaction(),
                OutboxSampler(f"postgresql://sampling:verysecret@{host}/{database}") as sampler,
            ):
                await admin.execute("SELECT 1")
                holders = (await taken(sampler)).holders
                pid = admin.info.backend_pid
                assert [each for each in holders if each.pid == pid] == [Holder("session", pid, "", 0)]
        finally:
            await admin.execute("DROP OWNED BY sampling")
            await admin.execute("DROP ROLE sampling")


@pytest.mark.parametrize("statistics", ["stale", "fresh"])
async def test_it_reads_no_more_than_its_bounds(
    statistics: str, dsn: str, connection: "psycopg.AsyncConnection[Any]"
) -> None:
    """Half of all rows are one tenant's: the planner, which counts with equal ones, would fetch and sort them all."""
    await connection.execute("ALTER TABLE tickkeeper.outbox SET (autovacuum_enabled = off)")
    await connection.execute("ANALYZE tickkeeper.outbox")
    await fill(connection, "SELECT 'big' AS tenant, interval '-1 h' AS due FROM generate_series(1, 60000)")
    await fill(connection, "SELECT 't' || i AS tenant, interval '-1 h' AS due FROM generate_series(1, 1000) i")
    await fill(connection, "SELECT 'w' || i AS tenant, interval '1 h' AS due FROM generate_series(1, 1000) i")
    if statistics == "fresh":
        await connection.execute("ANALYZE tickkeeper.outbox")

    async def look(look: Look) -> tuple[int, int]:
        before = await counted(look)
        await look.one("sample_first", bound=COUNTED)
        given = {"bound": COUNTED, "looked": 2_000, "pairs": 2_500, "asked": 1_000}
        await look.one("sample_heads", **given, last_tenant=None, last_kind=None)
        await look.one("sample_heads", **given, last_tenant="b", last_kind="z")
        after = await counted(look)
        return after[0] - before[0], after[1] - before[1]

    async def counted(look: Look) -> tuple[int, int]:
        cursor = await look._connection.execute(
            "SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'outbox'"
        )
        (record,) = await cursor.fetchall()
        return record

    async with OutboxLooks(dsn) as looks:
        scans, rows = await looks.run(look, seconds=30)
        assert scans == 0
        # the first rows; twice due ones, their leases, those that wait, and a step for each of 2,001 tenants
        assert rows <= 5 * COUNTED + 2 * 2_000 + 2 * 2 * 2_001
