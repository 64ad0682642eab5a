"""Brings the database's schema to the version that the code needs, while producers and workers go on."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import Connection, IsolationLevel, sql

from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.queries import DEFAULT_SCHEMA, check_schema_name, queries
from tickkeeper.outbox.store import SchemaError, StoreUnavailable
from tickkeeper.outbox.version import Migration, migrations, misfit

#: How long to wait for another migration, and how long to go on asking for locks that others hold. Seconds.
_PATIENCE = 60.0
#: How long one request for a lock on a table in use may stand: everybody who comes later waits behind it.
_LOCK_TIMEOUT = "300ms"
#: Between two such requests, so that those who waited behind the first get their turn. Seconds.
_PAUSE = 0.3
#: How long an index may wait for transactions that were there before it. Nobody waits behind that.
_INDEX_TIMEOUT = "15min"


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
    """Apply the migrations that are missing. Safe to run at once, again, and while the outbox is in use.

    A schema is made in one transaction. A later version is reached step by step, each whole or not at all, and indexes
    are built without blocking anybody; they wait for transactions that began before them. Connect to the server itself,
    not to a pooler in transaction mode.

    The role must own the schema, or may create it in the database. Raises ValueError for an unreadable dsn or a bad
    schema name, StoreUnavailable when the database cannot be reached, and SchemaError when a migration fails (the
    message says what was left) or the schema is newer than the code.
    """
    check_schema_name(schema)
    parsed = Dsn(dsn)
    # The first connection holds the lock of all migrations, and nothing else: an index built under it would wait for
    # whoever waits for the lock with a snapshot of its own.
    with _connect(parsed) as holder, _connect(parsed) as conn:
        steps = _Steps(conn, schema)
        try:
            with _alone(holder, schema):
                return steps.run()
        except psycopg.Error as error:
            said = parsed.scrub(error.diag.message_primary or str(error))
            left = f"it stays at version {steps.version}" if steps.version else "nothing was changed"
            raise SchemaError(f'the outbox schema "{schema}" cannot be migrated, {left}: {said}') from error


def _connect(parsed: Dsn) -> Connection:
    try:
        conn = psycopg.connect(
            parsed.conninfo(connect_timeout=5, application_name="tickkeeper migrate"),
            autocommit=True,
            prepare_threshold=None,
        )
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"the database cannot be reached: {parsed.scrub(str(error))}") from None
    # The role's own defaults may be stricter, and a migration must see what the one before it committed.
    conn.isolation_level = IsolationLevel.READ_COMMITTED
    conn.read_only = False
    return conn


@contextmanager
def _alone(holder: Connection, schema: str) -> Iterator[None]:
    """Be the only one who migrates this schema. Asked again and again, not waited for: see above."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with holder.transaction():
            holder.execute("SELECT set_config('idle_in_transaction_session_timeout', '0', true)")
            name = f"tickkeeper.outbox.{schema}"
            if _value(holder, "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", name):
                # Of a statement with parameters the server keeps the snapshot until the next one, and an index that is
                # built would wait for it; one without parameters keeps none.
                holder.execute("SELECT 1")
                yield
                return
        if time.monotonic() > deadline:
            raise SchemaError(
                f'the outbox schema "{schema}" cannot be migrated, nothing was changed: another migration has been '
                f"running for {_PATIENCE:g} s"
            )
        time.sleep(0.05)


class _Steps:
    """The way from the version that is there to the code's own."""

    def __init__(self, conn: Connection, schema: str) -> None:
        self._conn = conn
        self._schema = schema
        self._query = queries(schema)
        #: what has been reached
        self.version = 0

    def run(self) -> Migrated:
        # On the session, since an index is built outside of any transaction.
        self._conn.execute(
            "SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', '0', false), "
            "set_config('default_transaction_read_only', 'off', false)",
            [_LOCK_TIMEOUT],
        )
        encoding = _value(self._conn, "SELECT current_setting('server_encoding')")
        if encoding != "UTF8":
            raise SchemaError(f"the database's encoding is {encoding}: must be UTF8, payloads are Unicode")
        found = self._found()
        before = self.version = found[0] if found else 0
        latest = migrations()[-1].version
        if found and before > latest:
            if complaint := misfit(self._schema, *found):
                raise SchemaError(complaint)
            return Migrated(before, before)
        wanted = [each for each in migrations() if each.version > before]
        if not before:
            self._create(wanted)
        else:
            for migration in wanted:
                self._apply(migration)
        return Migrated(before, latest, tuple(each.name for each in wanted))

    def _found(self) -> tuple[int, int | None] | None:
        table = "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'schema_version'"
        if not _value(self._conn, table, self._schema):
            return None
        return self._conn.execute(self._query["schema_version"]).fetchone()

    def _create(self, wanted: list[Migration]) -> None:
        """Everything at once: nobody is there yet whom an index could block."""
        with self._conn.transaction():
            # Not IF NOT EXISTS: that wants the right to create schemas even where this one is there already.
            if not _value(self._conn, "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = %s", self._schema):
                self._conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
            self._conn.execute(self._query["create_version_table"])
            for migration in wanted:
                self._conn.execute(migration.sql(self._schema).replace(b" CONCURRENTLY", b""))
                self._record(migration)
        self.version = wanted[-1].version

    def _apply(self, migration: Migration) -> None:
        if migration.online:
            self._build(migration)
            self._record(migration)
        else:
            self._change(migration)
        self.version = migration.version

    def _build(self, migration: Migration) -> None:
        for (name,) in self._conn.execute(self._query["broken_indexes"], {"schema": self._schema}).fetchall():
            self._conn.execute(f"DROP INDEX CONCURRENTLY {name}".encode())
        self._conn.execute("SELECT set_config('lock_timeout', %s, false)", [_INDEX_TIMEOUT])
        for statement in migration.statements(self._schema):
            self._conn.execute(statement)
        self._conn.execute("SELECT set_config('lock_timeout', %s, false)", [_LOCK_TIMEOUT])

    def _change(self, migration: Migration) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with self._conn.transaction():
                    self._conn.execute(migration.sql(self._schema))
                    self._record(migration)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                if time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(_PAUSE)

    def _record(self, migration: Migration) -> None:
        given = {"version": migration.version, "name": migration.name, "serves": migration.serves}
        self._conn.execute(self._query["record_version"], given)


def _value(conn: Connection, query: str, *values: str) -> object:
    row = conn.execute(query, values).fetchone()
    assert row is not None
    return row[0]
