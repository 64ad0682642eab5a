"""Listing rows of a real outbox, page by page."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, PostgresBench
from tickkeeper.outbox import Failure
from tickkeeper.outbox import listing as listing_module
from tickkeeper.outbox.listing import Filter, Listed, page
from tickkeeper.outbox.looking import Look, OutboxLooks

HOUR = timedelta(hours=1)


@pytest.fixture
async def looks(dsn: str) -> AsyncIterator[OutboxLooks]:
    async with OutboxLooks(dsn) as looks:
        yield looks


async def every(looks: OutboxLooks, wanted: Filter, *, limit: int = 3) -> list[Listed]:
    """All pages; each brings no more than asked for."""
    rows: list[Listed] = []
    cursor: str | None = None
    while True:
        found = await page(looks, wanted, limit=limit, cursor=cursor)
        assert len(found.rows) <= limit
        rows += found.rows
        if found.cursor is None:
            return rows
        assert found.cursor != cursor
        cursor = found.cursor


@pytest.fixture
async def rows(postgres: PostgresBench) -> dict[str, list[int]]:
    """Rows in every state, by state."""
    dying = await postgres.enqueue("mail", tenant="acme")
    claim = await postgres.store.claim("acme", kinds=None, limit=1, lease=LEASE)
    await postgres.store.fail(claim.lease_id, [Failure(dying.id, "no\x00", dead=True)])
    leased = await postgres.enqueue("mail", tenant="acme")
    await postgres.store.claim("acme", kinds=None, limit=1, lease=LEASE)
    later = [await postgres.enqueue("sms", tenant="acme", delay=HOUR) for _ in range(4)]
    ready = [await postgres.enqueue(kind, tenant=tenant) for tenant in ("acme", "b") for kind in ("mail", "sms")]
    keyed = [await postgres.enqueue("mail", tenant="c", ordering_key="k", delay=HOUR) for _ in range(3)]
    return {
        "dead": [dying.id],
        "leased": [leased.id],
        "scheduled": [*(each.id for each in later), keyed[0].id],
        "ready": [each.id for each in ready],
        "behind": [each.id for each in keyed[1:]],
    }


async def test_every_row_is_listed_once_in_its_state(looks: OutboxLooks, rows: dict[str, list[int]]) -> None:
    for limit in (1, 2, 3, 100):
        for state, ids in rows.items():
            found = await every(looks, Filter(state=state), limit=limit)  # type: ignore[arg-type]
            assert [row.id for row in found] == ids
            assert {row.state for row in found} == {state}
        living = [row.id for row in await every(looks, Filter(), limit=limit)]
        assert sorted(living) == sorted({row for state, ids in rows.items() if state != "dead" for row in ids})


async def test_filters(looks: OutboxLooks, rows: dict[str, list[int]]) -> None:
    assert [row.id for row in await every(looks, Filter("b"))] == rows["ready"][2:]
    assert [row.id for row in await every(looks, Filter("b", "sms"))] == rows["ready"][3:]
    assert [row.id for row in await every(looks, Filter(kind="sms", state="ready"))] == rows["ready"][1::2]
    assert await every(looks, Filter("nobody")) == []
    assert [row.id for row in await every(looks, Filter("acme", "mail", "dead"))] == rows["dead"]
    assert await every(looks, Filter("acme", "sms", "dead")) == []


async def test_what_is_told_of_a_row(looks: OutboxLooks, rows: dict[str, list[int]]) -> None:
    (dead,) = (await page(looks, Filter(state="dead"), limit=9)).rows
    assert (dead.attempts, dead.max_attempts, dead.payload_bytes, dead.error) == (
        1,
        20,
        4,
        "no\N{REPLACEMENT CHARACTER}",
    )
    (leased,) = (await page(looks, Filter(state="leased"), limit=9)).rows
    assert leased.lease_until is not None
    assert not leased.suspect
    behind = (await page(looks, Filter(state="behind"), limit=9)).rows[0]
    assert behind.ordering_key == "k"
    assert behind.due is not None
    assert behind.due - behind.created_at == pytest.approx(HOUR, abs=timedelta(seconds=9))  # its own, not infinity


async def test_a_page_examines_a_bounded_number_of_rows(
    looks: OutboxLooks, connection: "psycopg.AsyncConnection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "_EXAMINED", 100)
    await connection.execute(
        "INSERT INTO tickkeeper.outbox (tenant_id, kind, payload, payload_bytes, headers, max_attempts, available_at, "
        "created_at) SELECT 'acme', CASE WHEN i = 250 THEN 'rare' ELSE 'mail' END, '1', 1, '{}', 20, "
        "now() + CASE WHEN i = 150 THEN interval '1 h' ELSE interval '0' END, now() FROM generate_series(1, 1000) i"
    )
    first = await page(looks, Filter(state="scheduled"), limit=9)
    assert (first.rows, first.cursor is None) == ((), False)
    assert [row.id for row in await every(looks, Filter(state="scheduled"))] == [150]
    assert [row.id for row in await every(looks, Filter(kind="rare"))] == [250]
    assert len(await every(looks, Filter(), limit=7)) == 1000


async def test_bad_arguments(looks: OutboxLooks) -> None:
    for limit in (0, 10_001):
        with pytest.raises(ValueError, match=f"limit is {limit}: must be 1 to 10000"):
            await page(looks, Filter(), limit=limit)
    for cursor in ("", "x", "W10", "!!", "WzEsMl0", "bnVsbA", "ä"):
        with pytest.raises(ValueError, match=r"cursor is .*: must be one that this listing gave"):
            await page(looks, Filter(), limit=9, cursor=cursor)
    with pytest.raises(ValueError, match="state is 'sleepy': must be one of ready, leased, scheduled, behind, dead"):
        Filter(state="sleepy")  # type: ignore[arg-type]


@pytest.mark.parametrize("statistics", ["stale", "fresh"])
async def test_a_page_reads_no_more_than_it_examines(
    statistics: str, looks: OutboxLooks, connection: "psycopg.AsyncConnection[Any]"
) -> None:
    for table, columns, values in (
        ("outbox", "available_at", "now() - i * interval '1 s'"),
        ("outbox_dead", "died_at, reason", "now() - i * interval '1 s', 'lost'"),
    ):
        await connection.execute(f"ALTER TABLE tickkeeper.{table} SET (autovacuum_enabled = off)".encode())
        await connection.execute(f"ANALYZE tickkeeper.{table}".encode())
        await connection.execute(
            f"INSERT INTO tickkeeper.{table} (id, tenant_id, kind, payload, payload_bytes, headers, attempts, "
            f"max_attempts, created_at, {columns}) "
            "SELECT i, CASE WHEN i % 100 = 0 THEN 'small' ELSE 'big' END, 'k' || i % 2, '1', 1, '{}', 1, 20, now(), "
            f"{values} FROM generate_series(1, 20000) i".encode()
        )
        if statistics == "fresh":
            await connection.execute(f"ANALYZE tickkeeper.{table}".encode())
    start = {"last_tenant": "big", "last_kind": "k0", "last_due": 0.0, "last_id": 0}
    pages: list[tuple[str, dict[str, Any]]] = [
        ("list_live", {"tenant_id": tenant, "kind": kind, "state": state, **last})
        for tenant in (None, "big", "small")
        for kind in (None, "k1")
        for state in (None, "leased")
        for last in (dict.fromkeys(start), start)
    ]
    pages += [
        ("list_dead", {"tenant_id": tenant, "kind": kind, "last_id": last})
        for tenant in (None, "big", "small")
        for kind in (None, "k1")
        for last in (None, 10_000)
    ]
    for query, given in pages:

        async def look(look: Look, query: str = query, given: dict[str, Any] = given) -> None:
            before = await counted(look)
            await look.all(query, limit=10, examined=100, **given)
            scans, rows = (after - sooner for after, sooner in zip(await counted(look), before, strict=True))
            # The planner looks at the ends of an index by itself.
            assert (scans, rows <= 104) == (0, True), (query, given, rows)

        await looks.run(look, seconds=30)


async def counted(look: Look) -> tuple[int, int]:
    """Scans of tables and rows fetched by way of indexes; what the session has not reported yet is in it too."""
    cursor = await look._connection.execute(
        "SELECT sum(seq_scan)::int, sum(idx_tup_fetch)::int FROM pg_stat_xact_user_tables "
        "WHERE schemaname = 'tickkeeper' AND relname IN ('outbox', 'outbox_dead')"
    )
    (record,) = await cursor.fetchall()
    return record
