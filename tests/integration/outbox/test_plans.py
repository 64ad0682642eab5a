"""What PostgreSQL makes of the queries: plans that hold, HOT updates, and nothing left in sessions."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.integration.outbox.benches import PostgresBench, claim, ids
from tickkeeper.outbox import NewRow, enqueue_many
from tickkeeper.outbox.queries import queries

Connection = psycopg.AsyncConnection[Any]

ROWS, KINDS, LIMIT = 20_000, 10, 100
FILL = """
INSERT INTO tickkeeper.outbox (tenant_id, kind, payload, payload_bytes, headers, max_attempts, available_at, created_at)
SELECT %(tenant)s, 'k' || i %% %(kinds)s, '"x"', 3, '{}', 20, now() - interval '1 hour', now()
  FROM generate_series(1, %(rows)s) i
"""
#: What the statistics were taken of, and how the rows come back to what a claim finds.
STALE = {
    "while all were leased": (
        "UPDATE tickkeeper.outbox SET lease_id = gen_random_uuid(), lease_until = now() + interval '1 hour'",
        "UPDATE tickkeeper.outbox SET lease_id = NULL, lease_until = NULL",
    ),
    "while all waited for later": (
        "UPDATE tickkeeper.outbox SET available_at = now() + interval '1 hour'",
        "UPDATE tickkeeper.outbox SET available_at = now() - interval '1 hour'",
    ),
    "while all were suspects": (
        "UPDATE tickkeeper.outbox SET suspect = true",
        "UPDATE tickkeeper.outbox SET suspect = false",
    ),
    "while all had one attempt left": (
        "UPDATE tickkeeper.outbox SET attempts = 19",
        "UPDATE tickkeeper.outbox SET attempts = 0",
    ),
    "of the table when it was empty": ("TRUNCATE tickkeeper.outbox", None),
    "never": (None, None),
    "just now": ("SELECT 1", None),
}


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("claim", ["k0"]),
        ("claim", [f"k{n}" for n in range(5)]),
        ("claim", ["k0", "absent"]),
        ("claim_plain", ["k0"]),
    ],
)
@pytest.mark.parametrize("taken", STALE)
async def test_a_claim_reads_no_more_than_it_must(
    connection: Connection, taken: str, query: str, kinds: list[str]
) -> None:
    await connection.execute("ALTER TABLE tickkeeper.outbox SET (autovacuum_enabled = off)")
    before, after = STALE[taken]
    if after is None and before:
        await connection.execute(before.encode())
    else:
        await _fill(connection)
    if before:
        if after:
            await connection.execute(before.encode())
        if taken == "just now":
            await _fill(connection)
        await connection.execute("ANALYZE tickkeeper.outbox")
        if after:
            await connection.execute(after.encode())
        elif taken != "just now":
            await _fill(connection)
    given = {
        "tenant_id": "acme",
        "kinds": kinds,
        "kind": kinds[0],
        "limit": LIMIT,
        "ask": LIMIT,
        "weight": 8.0,
        "block": False,
        "max_bytes": 1 << 25,
        "behind_at": "-infinity",
        "behind_id": 0,
        "lease_id": uuid4(),
        "lease": 30,
    }
    cursor = await connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + queries("tickkeeper")[query], given)
    ((plan,),) = [row[0] for row in await cursor.fetchall()]
    assert "JIT" not in plan
    scans = [
        node for node in _nodes(plan["Plan"]) if "Scan" in node["Node Type"] and node.get("Relation Name") == "outbox"
    ]
    assert scans
    for node in scans:
        read = node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        assert node["Node Type"] != "Seq Scan", node
        assert read <= LIMIT * len(kinds), node
    updated = next(node for node in _nodes(plan["Plan"]) if node.get("Operation") == "Update")
    assert updated["Actual Rows"] == LIMIT


async def _fill(connection: Connection) -> None:
    await connection.execute(FILL.encode(), {"tenant": "acme", "kinds": KINDS, "rows": ROWS})
    await connection.execute(FILL.encode(), {"tenant": "other", "kinds": 2, "rows": ROWS // 4})


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


async def test_claims_are_hot_updates(postgres: PostgresBench, connection: Connection) -> None:
    await enqueue_many(connection, [NewRow("acme", "mail", "x" * 100) for _ in range(5_000)])
    while (taken := await claim(postgres, limit=500)).rows:
        await postgres.store.ack(taken.lease_id, ids(taken))
    await postgres.store.close()
    updated, hot = await _updates(connection, 5_000)
    assert updated == 5_000
    assert hot >= 0.85 * updated


async def test_renewals_and_hand_backs_are_hot_updates_too(postgres: PostgresBench, connection: Connection) -> None:
    await enqueue_many(connection, [NewRow("acme", "mail", "x" * 100) for _ in range(400)])
    taken = await claim(postgres, limit=400)
    await postgres.store.release(taken.lease_id, ids(taken))
    await postgres.store.close()
    updated, hot = await _updates(connection, 800)
    assert updated == 800
    assert hot >= 0.45 * updated  # two versions in one page, without a vacuum in between


async def _updates(connection: Connection, expected: int) -> tuple[int, int]:
    """Counted row versions, once the sessions have reported all of them: they do so when they end."""
    async with asyncio.timeout(60):
        while True:
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            cursor = await connection.execute(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'outbox'"
            )
            updated, hot = await cursor.fetchone() or (0, 0)
            if updated >= expected:
                return updated, hot
            await asyncio.sleep(0.1)


async def test_a_claim_of_many_kinds_is_not_compiled(postgres: PostgresBench, connection: Connection) -> None:
    """Its estimate passes jit_above_cost; the time that compiling takes is many times that of the claim."""
    kinds = [f"k{n}" for n in range(60)]
    await enqueue_many(connection, [NewRow("acme", kind, 1) for kind in kinds for _ in range(5)])
    await connection.execute("CREATE TABLE public.seen (jit text)")
    await connection.execute(
        "CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO public.seen VALUES (current_setting('jit')); RETURN new; END $$"
    )
    await connection.execute(
        "CREATE TRIGGER note BEFORE UPDATE ON tickkeeper.outbox FOR EACH STATEMENT EXECUTE FUNCTION public.note()"
    )
    assert len((await claim(postgres, limit=500, kinds=kinds)).rows) == 300
    assert len((await claim(postgres, limit=500, kinds=kinds[:1])).rows) == 0
    cursor = await connection.execute("SELECT jit FROM public.seen")
    assert [jit for (jit,) in await cursor.fetchall()] == ["off", await _jit(connection)]


async def _jit(connection: Connection) -> str:
    cursor = await connection.execute("SHOW jit")
    (value,) = await cursor.fetchone() or ("",)
    return str(value)


async def test_sessions_are_left_as_they_were(postgres: PostgresBench) -> None:
    """A pooler in transaction mode lends them to others: no prepared statement, no setting, no lock stays."""
    for number in range(20):
        await postgres.enqueue(f"k{number % 3}")
    for _ in range(20):
        taken = await claim(postgres, limit=3)
        await postgres.store.renew(taken.lease_id, ids(taken), postgres.store.default_lease)
        await postgres.store.ack(taken.lease_id, ids(taken))
    await claim(postgres, limit=10_000, kinds=["a", "b"])

    async def look(session: Any) -> list[Any]:
        found = []
        for question in (
            "SELECT name FROM pg_prepared_statements",
            "SELECT name || '=' || setting FROM pg_settings WHERE source = 'session'",
            "SELECT locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
        ):
            cursor = await session.execute(question.encode())
            found += await cursor.fetchall()
        return found

    assert await postgres.store._calls.run(look) == []
