"""The outbox's table: filling it as a set, emptying it, and the ceiling of how fast it can be drained."""

import json
import time
from collections.abc import Sequence

import psycopg
from psycopg import sql

from embedded.errors import PartFailed

SCHEMA = "tickkeeper"
KIND = "bench.row"
TENANT = "acme"
#: Of the payload as text.
PAYLOAD_BYTES = 100

Connection = psycopg.Connection[tuple[object, ...]]

_FRAME = len(json.dumps({"pad": ""}))

# Rows as enqueue writes them, without its checks: what is measured is how they leave.
_FILL = """
INSERT INTO tickkeeper.outbox (tenant_id, kind, payload, payload_bytes, headers, max_attempts, available_at, created_at)
SELECT (%(tenants)s::text[])[1 + n %% %(count)s::int], %(kind)s, jsonb_build_object('pad', repeat('x', %(pad)s)),
       %(bytes)s, '{}', 20, clock_timestamp(), clock_timestamp()
  FROM generate_series(0, %(rows)s::int - 1) n
"""

_ENQUEUE = """
SELECT count(*) FROM generate_series(0, %(rows)s::int - 1) n
 CROSS JOIN LATERAL tickkeeper.enqueue(
    tenant_id => %(tenant)s, kind => %(kind)s, payload => jsonb_build_object('key', {key}),
    ordering_key => 'k' || {key}) e
"""

# A loop in the server with the columns that a worker reads and writes, and one commit a batch. Nothing is sent.
_CEILING = """
CREATE OR REPLACE PROCEDURE bench_ceiling(tenant text, wanted text, batch integer, apart boolean)
LANGUAGE plpgsql AS $procedure$
DECLARE
    lease uuid;
    taken bigint[];
    seen  bigint;
BEGIN
    LOOP
        lease := gen_random_uuid();
        WITH claimed AS (
            UPDATE tickkeeper.outbox
               SET attempts = attempts + 1, lease_id = lease, lease_until = clock_timestamp() + interval '30 seconds'
             WHERE id = ANY (ARRAY(
                SELECT o.id FROM tickkeeper.outbox o
                 WHERE o.tenant_id = tenant AND o.kind = wanted AND o.available_at <= statement_timestamp()
                   AND (o.lease_until IS NULL OR o.lease_until <= statement_timestamp())
                 ORDER BY o.available_at, o.id
                 LIMIT batch
                   FOR UPDATE SKIP LOCKED))
            RETURNING id, kind, payload::text AS payload, headers::text AS headers, attempts, max_attempts,
                      available_at, created_at, dedup_key, ordering_key)
        SELECT array_agg(c.id), sum(length(c.payload) + length(c.headers)) INTO taken, seen FROM claimed c;
        EXIT WHEN taken IS NULL;
        IF apart THEN
            COMMIT;
        END IF;
        DELETE FROM tickkeeper.outbox WHERE id = ANY (taken) AND lease_id = lease;
        COMMIT;
    END LOOP;
END
$procedure$
"""


def connect(dsn: str) -> Connection:
    """A connection that commits each statement."""
    return psycopg.connect(dsn, autocommit=True, connect_timeout=10)


def fill(connection: Connection, rows: int, tenants: Sequence[str] = (TENANT,), kind: str = KIND) -> None:
    """Empty the outbox, and put ``rows`` due rows of 100 bytes into it, over ``tenants`` in turn."""
    empty(connection)
    add(connection, rows, tenants, kind)
    settle(connection)


def add(connection: Connection, rows: int, tenants: Sequence[str] = (TENANT,), kind: str = KIND) -> None:
    """Put rows into it beside those that are there."""
    pad = PAYLOAD_BYTES - _FRAME
    values = {"tenants": list(tenants), "count": len(tenants), "kind": kind, "rows": rows, "pad": pad}
    connection.execute(_FILL, values | {"bytes": PAYLOAD_BYTES})


def fill_keys(connection: Connection, rows: int, *, keys: int, hot: bool = False, kind: str = KIND) -> None:
    """Empty it, and enqueue rows over ``keys`` ordering keys; half of all into the first key where ``hot``."""
    empty(connection)
    key = f"CASE WHEN n %% 2 = 0 THEN 0 ELSE 1 + n / 2 %% {keys} END" if hot else f"n %% {keys}"
    values = {"rows": rows, "tenant": TENANT, "kind": kind}
    connection.execute(sql.SQL(_ENQUEUE).format(key=sql.SQL(f"({key})")), values)
    settle(connection)


def empty(connection: Connection) -> None:
    """Take everything out of every table of the outbox."""
    found = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename LIKE 'outbox%%'", (SCHEMA,)
    ).fetchall()
    tables = sql.SQL(", ").join(sql.Identifier(SCHEMA, str(name)) for (name,) in found)
    connection.execute(sql.SQL("TRUNCATE {}").format(tables))


def settle(connection: Connection) -> None:
    """Statistics up to date, and no checkpoint owed from the filling."""
    connection.execute("VACUUM (ANALYZE) tickkeeper.outbox")
    connection.execute("CHECKPOINT")


def left(connection: Connection) -> int:
    """Rows that are still in it."""
    return _count(connection, "SELECT count(*) FROM tickkeeper.outbox")


def dead(connection: Connection) -> int:
    """Rows that were given up."""
    return _count(connection, "SELECT count(*) FROM tickkeeper.outbox_dead")


def ceiling(connection: Connection, rows: int, batch: int, *, apart: bool = False) -> float:
    """Fill it, and drain it by a loop in the server; the seconds that the loop took.

    ``apart``: each claim is committed before its rows leave, as a lease must be; else one commit serves a batch.
    """
    connection.execute(_CEILING)
    fill(connection, rows)
    started = time.perf_counter()
    connection.execute("CALL bench_ceiling(%s, %s, %s, %s)", (TENANT, KIND, batch, apart))
    seconds = time.perf_counter() - started
    if rest := left(connection):
        raise PartFailed(f"the ceiling left {rest} of {rows} rows")
    return seconds


def _count(connection: Connection, statement: sql.SQL | str) -> int:
    found = connection.execute(statement).fetchone()  # type: ignore[arg-type, unused-ignore]
    assert found is not None
    return int(str(found[0]))
