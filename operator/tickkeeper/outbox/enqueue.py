"""Producers: put rows into the outbox within the caller's own transaction.

The row is there if, and only if, that transaction commits. On a connection in autocommit mode each call is a
transaction of its own, and then nothing ties the row to other writes.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow, tuple_row

from tickkeeper.outbox.new_row import (
    DEFAULT_MAX_ATTEMPTS,
    MAX_PAYLOAD_BYTES,
    DuplicateRow,
    Enqueued,
    InvalidRow,
    NewRow,
    OnDuplicate,
    parameters,
)
from tickkeeper.outbox.queries import DEFAULT_SCHEMA, queries
from tickkeeper.outbox.store import SchemaError
from tickkeeper.outbox.version import missing

_ABSENT = (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName)


async def enqueue(
    conn: AsyncConnection[Any],
    tenant_id: str,
    kind: str,
    payload: Any,
    *,
    headers: dict[str, str] | None = None,
    dedup_key: str | None = None,
    on_duplicate: OnDuplicate = "keep",
    available_at: datetime | None = None,
    delay: timedelta | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ordering_key: str | None = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    schema: str = DEFAULT_SCHEMA,
) -> Enqueued:
    """Enqueue one row; ``NewRow`` explains the fields.

    InvalidRow (a ValueError): a field breaks a rule; nothing was sent, and the transaction goes on. TypeError: the
    connection is a blocking one. DuplicateRow,
    SchemaError and psycopg's errors leave a transaction that must be rolled back.
    """
    _not_sync(conn, "enqueue")
    row = NewRow(
        tenant_id, kind, payload, headers, dedup_key, on_duplicate, available_at, delay, max_attempts, ordering_key
    )
    given = parameters(row, max_payload_bytes=max_payload_bytes)
    async with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            await cursor.execute(queries(schema)["enqueue"], given)
        except psycopg.Error as error:
            raise _explained(error, schema) from error
        return _one(await cursor.fetchall())


def enqueue_sync(
    conn: Connection[Any],
    tenant_id: str,
    kind: str,
    payload: Any,
    *,
    headers: dict[str, str] | None = None,
    dedup_key: str | None = None,
    on_duplicate: OnDuplicate = "keep",
    available_at: datetime | None = None,
    delay: timedelta | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ordering_key: str | None = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    schema: str = DEFAULT_SCHEMA,
) -> Enqueued:
    """``enqueue`` for a blocking connection."""
    _not_async(conn, "enqueue_sync")
    row = NewRow(
        tenant_id, kind, payload, headers, dedup_key, on_duplicate, available_at, delay, max_attempts, ordering_key
    )
    given = parameters(row, max_payload_bytes=max_payload_bytes)
    with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            cursor.execute(queries(schema)["enqueue"], given)
        except psycopg.Error as error:
            raise _explained(error, schema) from error
        return _one(cursor.fetchall())


async def enqueue_many(
    conn: AsyncConnection[Any],
    rows: Sequence[NewRow],
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    schema: str = DEFAULT_SCHEMA,
) -> list[Enqueued]:
    """Enqueue rows in one statement, in the order given; raises as ``enqueue`` does, naming the row by its place."""
    _not_sync(conn, "enqueue_many")
    given = _columns(rows, max_payload_bytes)
    async with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            await cursor.execute(queries(schema)["enqueue_many"], given)
        except psycopg.Error as error:
            raise _explained(error, schema) from error
        return [Enqueued(*record) for record in await cursor.fetchall()]


def enqueue_many_sync(
    conn: Connection[Any],
    rows: Sequence[NewRow],
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    schema: str = DEFAULT_SCHEMA,
) -> list[Enqueued]:
    """``enqueue_many`` for a blocking connection."""
    _not_async(conn, "enqueue_many_sync")
    given = _columns(rows, max_payload_bytes)
    with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            cursor.execute(queries(schema)["enqueue_many"], given)
        except psycopg.Error as error:
            raise _explained(error, schema) from error
        return [Enqueued(*record) for record in cursor.fetchall()]


# Only the other kind is refused: a pool's or a framework's stand-in for a connection may be of any class.


def _not_sync(conn: Any, name: str) -> None:
    if isinstance(conn, Connection):
        raise TypeError(f"{name} takes a psycopg.AsyncConnection: for a psycopg.Connection use {name}_sync")


def _not_async(conn: Any, name: str) -> None:
    if isinstance(conn, AsyncConnection):
        other = name.removesuffix("_sync")
        raise TypeError(f"{name} takes a psycopg.Connection: for a psycopg.AsyncConnection use await {other}")


def _one(records: list[TupleRow]) -> Enqueued:
    (record,) = records
    return Enqueued(*record)


def _columns(rows: Sequence[NewRow], max_payload_bytes: int) -> dict[str, list[Any]]:
    given = []
    for place, row in enumerate(rows):
        try:
            given.append(parameters(row, max_payload_bytes=max_payload_bytes))
        except InvalidRow as error:
            error.args = (f"rows[{place}]: {error}",)
            raise
    fields = parameters(NewRow("-", "-", None)).keys()
    return {field: [each[field] for each in given] for field in fields}


def _explained(error: psycopg.Error, schema: str) -> Exception:
    """The error to raise for what the database answered."""
    if isinstance(error, psycopg.errors.UniqueViolation):
        return DuplicateRow(error.diag.message_primary or str(error))
    if isinstance(error, _ABSENT):
        return SchemaError(missing(schema))
    return error
