"""Brings the database's schema to the version that the code needs."""

import asyncio
from dataclasses import dataclass

import psycopg
from psycopg import Connection, IsolationLevel, sql

from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.queries import DEFAULT_SCHEMA, check_schema_name, queries
from tickkeeper.outbox.store import SchemaError, StoreUnavailable
from tickkeeper.outbox.version import migrations, misfit

#: How long to wait for another migration or for locks of running transactions, as PostgreSQL spells it.
_LOCK_TIMEOUT = "60s"


@dataclass(frozen=True, slots=True)
class Migrated:
    """The version found (0: none) and the version left, and the names of the migrations applied in between."""

    before: int
    after: int
    applied: tuple[str, ...] = ()


async def migrate(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> Migrated:
    """``migrate_sync`` in a thread. Cancelled, it goes on to its end."""
    return await asyncio.to_thread(migrate_sync, dsn, schema=schema)


def migrate_sync(dsn: str, *, schema: str = DEFAULT_SCHEMA) -> Migrated:
    """Apply the migrations that are missing, all of them or none, in one transaction. Safe to run at once and again.

    The role must own the schema, or may create it in the database. Raises ValueError for an unreadable dsn or a bad
    schema name, StoreUnavailable when the database cannot be reached, and SchemaError, with nothing changed, when a
    migration fails or the schema is newer than the code.
    """
    check_schema_name(schema)
    parsed = Dsn(dsn)
    try:
        conn = psycopg.connect(
            parsed.conninfo(connect_timeout=5, application_name="tickkeeper migrate"),
            autocommit=True,
            prepare_threshold=None,
        )
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"the database cannot be reached: {parsed.scrub(str(error))}") from None
    with conn:
        # The role's own defaults may be stricter, and a migration must see what the one before it committed.
        conn.isolation_level = IsolationLevel.READ_COMMITTED
        conn.read_only = False
        try:
            with conn.transaction():
                return _migrate(conn, schema)
        except psycopg.Error as error:
            said = error.diag.message_primary or str(error)
            raise SchemaError(
                f'the outbox schema "{schema}" cannot be migrated, nothing was changed: {parsed.scrub(said)}'
            ) from error


def _migrate(conn: Connection, schema: str) -> Migrated:
    query = queries(schema)
    conn.execute(
        "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', '0', true)", [_LOCK_TIMEOUT]
    )
    conn.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"tickkeeper.outbox.{schema}"])
    encoding = _value(conn, "SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise SchemaError(f"the database's encoding is {encoding}: must be UTF8, payloads are Unicode")
    # Not IF NOT EXISTS: that wants the right to create schemas even where this one is there already.
    if not _value(conn, "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = %s", schema):
        conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    if not _value(
        conn, "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'schema_version'", schema
    ):
        conn.execute(query["create_version_table"])
    found = conn.execute(query["schema_version"]).fetchone()
    before = found[0] if found else 0
    if found and before > migrations()[-1].version:
        if complaint := misfit(schema, *found):
            raise SchemaError(complaint)
        return Migrated(before, before)
    wanted = [each for each in migrations() if each.version > before]
    for migration in wanted:
        conn.execute(migration.sql(schema))
        conn.execute(query["record_version"], {"version": migration.version, "name": migration.name})
    return Migrated(before, max(before, migrations()[-1].version), tuple(each.name for each in wanted))


def _value(conn: Connection, query: str, *values: str) -> object:
    row = conn.execute(query, values).fetchone()
    assert row is not None
    return row[0]
