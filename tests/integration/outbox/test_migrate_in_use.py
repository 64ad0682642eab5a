"""The upgrade from the first release, while producers and workers of that release go on."""

import asyncio
import time
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, ids
from tests.integration.outbox.releases import migrate_to
from tickkeeper.outbox import Migrated, PostgresOutbox, SchemaError, enqueue, migrate, migrate_sync
from tickkeeper.outbox.version import code_version, migrations, misfit

ENQUEUE = "SELECT id FROM tickkeeper.enqueue('acme', 'mail', '1')"
#: What a worker of the first release writes: a claim, an acknowledgement and a failure.
CLAIM = """
UPDATE tickkeeper.outbox SET attempts = attempts + 1, lease_id = gen_random_uuid(),
       lease_until = now() + interval '30 s'
 WHERE id = (SELECT id FROM tickkeeper.outbox
              WHERE available_at <= now() AND coalesce(lease_until, '-infinity') <= now()
              ORDER BY available_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id
"""
ACK = "DELETE FROM tickkeeper.outbox WHERE id = %s"


@pytest.fixture
def former(database: str) -> str:
    """A database of the first release with rows in it."""
    migrate_to(database, 1)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"SELECT count(*) FROM generate_series(1, 2000) CROSS JOIN LATERAL ({ENQUEUE}) e".encode())
    return database


class Load:
    """Producers and workers without a pause; ``longest``: seconds of the slowest of their calls."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.longest = 0.0
        self.calls = 0
        self._stopped = False

    async def run(self, *statements: str) -> None:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as session:
            while not self._stopped:
                found: Any = None
                for statement in statements:
                    began = time.monotonic()
                    cursor = await session.execute(statement.encode(), [found] if "%s" in statement else None)
                    self.longest = max(self.longest, time.monotonic() - began)
                    self.calls += 1
                    if cursor.description:
                        found = (await cursor.fetchone() or (None,))[0]

    def stop(self) -> None:
        self._stopped = True


async def test_nobody_waits_long_for_the_upgrade(former: str) -> None:
    """Not even behind a transaction that stands in its way for seconds."""
    load = Load(former)
    async with await psycopg.AsyncConnection.connect(former) as holder, asyncio.TaskGroup() as tasks:
        for statements in ((ENQUEUE,), (ENQUEUE,), (CLAIM, ACK), (CLAIM, ACK)):
            tasks.create_task(load.run(*statements))
        await holder.execute("SELECT count(*) FROM tickkeeper.outbox")  # its lock stays until it ends
        migrating = asyncio.create_task(migrate(former))
        await asked_in_vain(former, holder)
        before = load.calls
        await holder.commit()
        assert await migrating == Migrated(1, code_version(), tuple(each.name for each in migrations()[1:]))
        load.stop()
    assert load.calls > before > 0
    # One request for a lock stands for 0.3 s at most; the rest is a slow machine's own.
    assert load.longest < 3


async def asked_in_vain(dsn: str, holder: "psycopg.AsyncConnection[Any]") -> None:
    """Until the migration was seen to wait for the holder, and to have let the others pass, some times."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tickkeeper migrate' "
        "AND %s = ANY (pg_blocking_pids(pid))"
    )
    turns = 0
    blocked = False
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as look, asyncio.timeout(60):
        while turns < 3:
            cursor = await look.execute(waiting.encode(), [holder.info.backend_pid])
            (count,) = await cursor.fetchone() or (0,)
            if blocked and not count:
                turns += 1
            blocked = bool(count)
            await asyncio.sleep(0.02)


async def test_the_indexes_are_valid_and_made_again_where_they_broke(former: str) -> None:
    with psycopg.connect(former, autocommit=True) as connection:
        # What a CREATE INDEX CONCURRENTLY leaves that was ended half way.
        for _ in range(2):
            connection.execute("SELECT FROM tickkeeper.enqueue('acme', 'twice', '1')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY outbox_run ON tickkeeper.outbox (kind)")
        assert invalid(connection) == ["outbox_run"]
        migrate_sync(former)
        assert invalid(connection) == []
        row = connection.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'outbox_run'").fetchone()
        assert row
        assert "(tenant_id, ordering_key, id)" in row[0]


def invalid(connection: psycopg.Connection[Any]) -> list[str]:
    found = connection.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid").fetchall()
    return [name.rpartition(".")[2] for (name,) in found]


def test_the_upgraded_schema_is_the_same_as_a_new_one(former: str, dsn: str) -> None:
    migrate_sync(former)
    assert described(former) == described(dsn)


def described(dsn: str) -> list[Any]:
    questions = (
        "SELECT table_name, column_name, data_type, column_default, is_nullable "  # noqa: ISC004
        "FROM information_schema.columns WHERE table_schema = 'tickkeeper' ORDER BY 1, 2",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'tickkeeper' ORDER BY 1",
        "SELECT proname, prosrc, proconfig FROM pg_proc WHERE pronamespace = 'tickkeeper'::regnamespace ORDER BY 1",
        "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
        "SELECT relname, reloptions::text FROM pg_class WHERE relnamespace = 'tickkeeper'::regnamespace ORDER BY 1",
        "SELECT version, name, compatible_with FROM tickkeeper.schema_version ORDER BY 1",
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [connection.execute(question.encode()).fetchall() for question in questions]


def test_code_of_the_first_release_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tickkeeper.outbox.version.code_version", lambda: 1)
    assert misfit("tickkeeper", migrations()[-1].version, migrations()[-1].serves) is None


async def test_workers_of_both_releases_keep_the_order(former: str) -> None:
    migrate_sync(former)
    async with (
        await psycopg.AsyncConnection.connect(former, autocommit=True) as old,
        PostgresOutbox(former) as new,
    ):
        await old.execute("TRUNCATE tickkeeper.outbox")
        rows = [(await enqueue(old, "acme", "mail", n, ordering_key="k")).id for n in range(6)]
        seen: list[Any] = []
        for _ in range(3):
            cursor = await old.execute(CLAIM.encode())
            found = await cursor.fetchall()
            taken = await new.claim("acme", kinds=None, limit=1, lease=LEASE)
            assert taken.rows == ()  # the key is with the other
            seen += [row for (row,) in found]
            await old.execute(ACK.encode(), found[0])
            taken = await new.claim("acme", kinds=None, limit=1, lease=LEASE)
            assert await (await old.execute(CLAIM.encode())).fetchall() == []
            seen += ids(taken)
            await new.ack(taken.lease_id, ids(taken))
        assert seen == rows


async def test_a_step_that_cannot_be_taken_leaves_those_before_it(former: str) -> None:
    with psycopg.connect(former, autocommit=True) as connection:
        connection.execute("CREATE TABLE tickkeeper.outbox_pause (x int)")
        with pytest.raises(SchemaError, match='it stays at version 2: relation "outbox_pause" already exists'):
            migrate_sync(former)
        connection.execute("DROP TABLE tickkeeper.outbox_pause")
        assert migrate_sync(former) == Migrated(2, code_version(), tuple(each.name for each in migrations()[2:]))
