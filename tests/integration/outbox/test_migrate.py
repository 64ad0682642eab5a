"""The schema: brought to the code's version once, by whoever comes first."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from embedded.postgres import Postgres
from tickkeeper.outbox import Migrated, PostgresOutbox, SchemaError, StoreUnavailable, migrate, migrate_sync
from tickkeeper.outbox.version import code_version

COMMAND = "run `tickkeeper outbox migrate`"


def execute(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


async def test_migrate_creates_and_then_leaves_alone(database: str) -> None:
    latest = code_version()
    first = await migrate(database)
    assert (first.before, first.after, len(first.applied)) == (0, latest, latest)
    assert await migrate(database) == Migrated(latest, latest)


def test_migrations_at_once_are_done_once(database: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: migrate_sync(database), range(8)))
    assert sorted(each.before for each in done) == [0] + [code_version()] * 7
    assert execute(database, "SELECT count(*) FROM tickkeeper.schema_version") == [(code_version(),)]


async def check(dsn: str, schema: str = "tickkeeper") -> None:
    async with PostgresOutbox(dsn, schema=schema) as store:
        await store.check_schema()


async def test_a_schema_that_fits_passes(dsn: str) -> None:
    await check(dsn)


async def test_a_missing_schema_is_told_in_one_line(database: str) -> None:
    with pytest.raises(SchemaError, match=COMMAND) as caught:
        await check(database)
    assert "missing" in str(caught.value)
    assert "\n" not in str(caught.value)
    execute(database, "CREATE SCHEMA tickkeeper")
    with pytest.raises(SchemaError, match=COMMAND):
        await check(database)
    with pytest.raises(SchemaError, match="`tickkeeper outbox migrate --schema apart`"):
        await check(database, "apart")


async def test_an_older_schema_is_told(dsn: str) -> None:
    execute(dsn, "DELETE FROM tickkeeper.schema_version")
    with pytest.raises(SchemaError, match=f"has version 0, this release needs {code_version()}: {COMMAND}"):
        await check(dsn)


async def test_a_newer_schema_is_told_unless_it_serves_us(dsn: str) -> None:
    execute(dsn, "INSERT INTO tickkeeper.schema_version (version, name) VALUES (999, 'x')")
    with pytest.raises(SchemaError, match="has version 999, newer than this release's"):
        await check(dsn)
    with pytest.raises(SchemaError, match="has version 999, newer"):
        await migrate(dsn)
    execute(dsn, "UPDATE tickkeeper.schema_version SET compatible_with = 1 WHERE version = 999")
    await check(dsn)
    assert await migrate(dsn) == Migrated(999, 999)


async def test_calls_say_so_too_and_go_on_once_it_is_there(database: str) -> None:
    async with PostgresOutbox(database) as store:
        for _ in range(2):
            with pytest.raises(SchemaError, match=COMMAND):
                await store.kinds("acme")
        await migrate(database)
        assert list(await store.kinds("acme")) == []
        execute(database, "DROP SCHEMA tickkeeper CASCADE")
        with pytest.raises(SchemaError, match=COMMAND):
            await store.kinds("acme")


def test_a_migration_that_fails_changes_nothing(database: str) -> None:
    execute(database, "CREATE SCHEMA tickkeeper")
    execute(database, "CREATE TABLE tickkeeper.outbox_dead (x int)")
    with pytest.raises(SchemaError, match='nothing was changed: relation "outbox_dead" already exists'):
        migrate_sync(database)
    assert execute(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'tickkeeper'") == [("outbox_dead",)]


def test_a_role_with_strict_defaults_can_migrate(database: str) -> None:
    name = database.rpartition("/")[2]
    settings = (
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "statement_timeout = '20ms'",
        "search_path = ''",
    )
    with psycopg.connect(database, autocommit=True) as connection:
        for setting in settings:
            connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    assert migrate_sync(database).after == code_version()


def test_a_role_without_grants_is_told_what_is_missing(postgres_server: Postgres, database: str) -> None:
    execute(database, "DROP ROLE IF EXISTS nobody_migrates")
    execute(database, "CREATE ROLE nobody_migrates LOGIN PASSWORD 'verysecret'")
    try:
        dsn = f"postgresql://nobody_migrates:verysecret@127.0.0.1:{postgres_server.port}/{database.rpartition('/')[2]}"
        with pytest.raises(SchemaError, match="permission denied for database"):
            migrate_sync(dsn)
    finally:
        execute(database, "DROP ROLE nobody_migrates")


def test_payloads_need_unicode(postgres_server: Postgres) -> None:
    execute(postgres_server.dsn(), "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(SchemaError, match="encoding is LATIN1: must be UTF8"):
            migrate_sync(postgres_server.dsn("latin"))
    finally:
        postgres_server.drop_database("latin")


def test_no_server_and_no_sense() -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot be reached: .*refused") as caught:
        migrate_sync("postgresql://user:verysecret@127.0.0.1:1/x")
    assert "verysecret" not in str(caught.value)
    with pytest.raises(ValueError, match="connection string cannot be read") as unread:
        migrate_sync("postgresql://user:verysecret%zz@127.0.0.1/x")
    assert "verysecret" not in str(unread.value)
    with pytest.raises(ValueError, match="schema name is 'Bad\"': must be"):
        migrate_sync("postgresql://user@127.0.0.1/x", schema='Bad"')
