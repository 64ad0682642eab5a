"""A million rows of 5,000 tenants: what a query reads depends on what it wants, not on what there is.

Rows read are counted by the server, those of triggers too, and no time is measured.
"""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from embedded.postgres import Postgres
from tickkeeper.outbox.queries import queries
from tickkeeper.outbox.runs import MAX_RUN

LIMIT = 100
#: acme's oldest rows are of a kind that nobody handles; the other tenants have from 60,000 rows down to 12.
FILL = """
INSERT INTO tickkeeper.outbox (tenant_id, kind, payload, payload_bytes, headers, max_attempts, available_at, created_at)
SELECT 'acme', CASE WHEN i <= 270000 THEN 'unhandled' ELSE 'k' || i % 10 END, '1'::jsonb, 1, '{}'::jsonb, 20,
       now() - interval '1 day' + i * interval '1 ms', now()
  FROM generate_series(1, 300000) i
UNION ALL
SELECT 't' || t, 'k' || i % 5, '1'::jsonb, 1, '{}'::jsonb, 20, now() - interval '1 hour' + i * interval '1 ms', now()
  FROM generate_series(1, 5000) t CROSS JOIN LATERAL generate_series(1, 12 + 60000 / t) i
"""
KEYED = """
INSERT INTO tickkeeper.outbox (tenant_id, kind, payload, payload_bytes, headers, max_attempts, ordering_key,
                               available_at, due_at, created_at)
SELECT 'keyed', 'k' || i % 3, '1'::jsonb, 1, '{}'::jsonb, 20, key, CASE WHEN first THEN due ELSE 'infinity' END,
       CASE WHEN NOT first THEN due END, now()
  FROM (SELECT i, CASE WHEN i % 2 = 0 THEN 'hot' ELSE 'key' || i % 1000 END AS key, i <= 1000 AND (i % 2 = 1 OR i = 2)
               AS first, now() - interval '1 day' + i * interval '1 ms' AS due
          FROM generate_series(1, 100000) i ORDER BY i) r
"""
TYPES = {
    "tenant_id": "text",
    "kind": "text",
    "kinds": "text[]",
    "ids": "bigint[]",
    "asked": "bigint[]",
    "heads": "bigint[]",
    "lease_id": "uuid",
    "lease": "float8",
    "weight": "float8",
    "block": "boolean",
    "errors": "text[]",
    "afters": "float8[]",
    "dead": "boolean[]",
    "base": "float8",
    "cap": "float8",
    "max_bytes": "bigint",
    "behind_at": "timestamptz",
    "behind_id": "bigint",
}
PLANS = ["force_custom_plan", "force_generic_plan"]

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def database(postgres_server: Postgres, migrated: str) -> Iterator[Connection]:
    dsn = postgres_server.create_database(template=migrated)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        for table in ("outbox", "outbox_key", "outbox_key_check", "outbox_pause", "outbox_block"):
            connection.execute(f"ALTER TABLE tickkeeper.{table} SET (autovacuum_enabled = off)".encode())
        connection.execute("ANALYZE")  # of empty tables: as stale as statistics can be
        connection.execute(FILL.encode())
        connection.execute(KEYED.encode())
        connection.execute(
            "INSERT INTO tickkeeper.outbox_key SELECT DISTINCT tenant_id, ordering_key FROM tickkeeper.outbox "
            "WHERE ordering_key IS NOT NULL"
        )
        count = connection.execute("SELECT count(*), count(DISTINCT tenant_id) FROM tickkeeper.outbox").fetchone()
        assert count
        assert count[0] > 950_000
        assert count[1] > 5_000
        yield connection
    postgres_server.drop_database(dsn)


# Twice in this order: with the statistics of the empty table, and with those of the full one.
@pytest.fixture(scope="module", params=["stale", "fresh"])
def filled(request: pytest.FixtureRequest, database: Connection) -> Connection:
    if request.param == "fresh":
        database.execute("ANALYZE")
    return database


class Session:
    """Runs named queries as one kind of plan, in a transaction that is rolled back, and counts the rows read."""

    def __init__(self, connection: Connection, plan: str) -> None:
        self._connection = connection
        connection.execute("DEALLOCATE ALL")
        connection.execute(f"SET plan_cache_mode = {plan}".encode())
        self.lease_id = uuid4()
        # What the session has not reported of earlier transactions is in the same counters.
        self._before = self._counted()

    def run(self, name: str, **given: Any) -> list[Any]:
        text = queries("tickkeeper")[name].decode()
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
        statement = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
        types = ", ".join(TYPES.get(each, "integer") for each in names)
        if not self._connection.execute("SELECT FROM pg_prepared_statements WHERE name = %s", [name]).fetchall():
            self._connection.execute(f"PREPARE {name} ({types}) AS {statement.rstrip().rstrip(';')}".encode())
        marks = ", ".join(f"%s::{TYPES.get(each, 'integer')}" for each in names)
        every = {"lease_id": self.lease_id, **given}
        cursor = psycopg.ClientCursor(self._connection)  # EXECUTE takes no parameters of the protocol
        cursor.execute(f"EXECUTE {name} ({marks})".encode(), [every[each] for each in names])
        return cursor.fetchall()

    def read(self) -> int:
        """Rows read so far by way of an index, in this transaction; none was read by a scan of the table."""
        scans, rows = self._counted()
        assert scans == self._before[0], "the table was scanned"
        return rows - self._before[1]

    def _counted(self) -> tuple[int, int]:
        row = self._connection.execute(
            "SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'outbox'"
        ).fetchone()
        assert row
        return int(row[0]), int(row[1])


@pytest.fixture(params=PLANS)
def session(request: pytest.FixtureRequest, filled: Connection) -> Iterator[Session]:
    with filled.transaction(force_rollback=True):
        yield Session(filled, request.param)


def claim(session: Session, tenant: str, kinds: list[str], **changes: Any) -> list[Any]:
    given = {"limit": LIMIT, "ask": LIMIT, "weight": 8.0, "block": False, "max_bytes": 1 << 25, "lease": 30}
    found = session.run("claim", tenant_id=tenant, kinds=kinds, **{**given, **changes})
    return [record[2] for record in found if record[2] is not None]


@pytest.mark.parametrize(
    ("tenant", "kinds", "found"),
    [
        ("acme", ["k0"], LIMIT),
        ("acme", [f"k{n}" for n in range(10)], LIMIT),
        ("acme", ["absent"], 0),
        ("acme", ["absent", "k3", "nor this"], LIMIT),
        ("acme", ["unhandled"], LIMIT),
        ("t1", ["k0", "k1"], LIMIT),
        ("t5000", ["k0", "k1", "k2", "k3", "k4"], 24),
        ("nobody", ["k0"], 0),
    ],
)
def test_a_claim(session: Session, tenant: str, kinds: list[str], found: int) -> None:
    assert len(claim(session, tenant, kinds)) == found
    # A look at each kind's first row, at its oldest, at those to take, and the update.
    assert session.read() <= 2 * LIMIT * len(kinds) + 2 * LIMIT


FROM_THE_START = {"behind_at": "-infinity", "behind_id": 0}


@pytest.mark.parametrize(("tenant", "kind", "found"), [("acme", "k0", LIMIT), ("t5000", "k1", 5), ("nobody", "k0", 0)])
def test_a_claim_of_plain_rows(session: Session, tenant: str, kind: str, found: int) -> None:
    given = {"limit": LIMIT, "max_bytes": 1 << 25, "lease": 30, **FROM_THE_START}
    records = session.run("claim_plain", tenant_id=tenant, kind=kind, **given)
    assert len([record for record in records if record[0] is not None]) == found
    assert session.read() <= 2 * LIMIT


def test_a_drain_goes_on_where_its_last_claim_ended(session: Session) -> None:
    given = {"tenant_id": "acme", "kind": "k0", "limit": LIMIT, "max_bytes": 1 << 25, "lease": 30}
    seen: list[int] = []
    place: dict[str, Any] = FROM_THE_START
    for turn in range(1, 6):
        records = sorted(session.run("claim_plain", **given, **place), key=lambda record: (record[5], record[0]))
        place = {"behind_at": records[-1][5], "behind_id": records[-1][0]}
        seen += [record[0] for record in records]
        # From the start each would read all that were leased before it as well.
        assert session.read() <= turn * 2 * LIMIT
    assert len(set(seen)) == 5 * LIMIT


def test_a_claim_of_plain_rows_where_some_are_not(session: Session) -> None:
    given = {"limit": LIMIT, "max_bytes": 1 << 25, "lease": 30, **FROM_THE_START}
    (record,) = session.run("claim_plain", tenant_id="keyed", kind="k0", **given)
    assert record[:2] == (None, "not plain")
    assert set(record[2:]) == {None}
    assert session.read() <= LIMIT


def test_what_is_asked_besides(session: Session) -> None:
    kinds = [kind for (kind,) in session.run("kinds", tenant_id="acme")]
    assert kinds == [*(f"k{n}" for n in range(10)), "unhandled"]
    assert session.run("due_left", tenant_id="acme", kinds=kinds) == [(True,)]
    assert session.read() <= 50
    ((seconds, ready),) = session.run("oldest", tenant_id="acme", bound=1_000)
    assert ready == 1_000
    assert seconds > 80_000
    assert session.read() <= 50 + 1_100


def test_writes_of_a_lease(session: Session) -> None:
    rows = claim(session, "acme", ["k1", "k2"])
    before = session.read()
    assert session.run("renew", ids=rows, lease=30)[0][0] == LIMIT
    given = {"asked": rows, "run": MAX_RUN, "block": False}
    assert session.run("release", ids=rows[:10], **given)[0][0] == 10
    failed = {"errors": ["no"] * 10, "afters": [1.0] * 10, "dead": [False] * 5 + [True] * 5, "base": 1.0, "cap": 9.0}
    assert session.run("fail", ids=rows[10:20], **failed, **given)[0][:2] == (10, 5)
    assert session.run("ack", ids=rows[20:])[0][0] == LIMIT - 20
    assert session.read() - before <= 6 * LIMIT


def test_runs_of_keys(session: Session) -> None:
    heads = claim(session, "keyed", ["k0", "k1", "k2"], ask=10)
    before = session.read()
    assert before <= 100
    room = {"room": LIMIT - len(heads), "share": 12, "max_bytes": 1 << 25, "lease": 30}
    behind = session.run("run", tenant_id="keyed", kinds=["k0", "k1", "k2"], heads=heads, **room)
    rows = sorted(heads + [record[0] for record in behind])
    assert len(rows) == LIMIT
    assert session.read() - before <= 8 * LIMIT
    # Out they go, and of each key the next row becomes the first: by the trigger, counted too.
    before = session.read()
    assert session.run("ack", ids=rows)[0][0] == LIMIT
    assert session.read() - before <= 2 * LIMIT + 10 * len(heads)


def test_a_failure_in_front_of_a_long_key(session: Session) -> None:
    (hot,) = claim(session, "keyed", ["k2"], ask=1)
    room = {"room": 20, "share": 20, "max_bytes": 1 << 25, "lease": 30}
    behind = session.run("run", tenant_id="keyed", kinds=["k0", "k1", "k2"], heads=[hot], **room)
    assert len(behind) == 20
    before = session.read()
    failed = {"errors": ["no"], "afters": [1.0], "dead": [False], "base": 1.0, "cap": 9.0}
    done = session.run("fail", ids=[hot], asked=[hot], run=MAX_RUN, block=False, **failed)
    assert done[0][0] == 1
    assert session.read() - before <= MAX_RUN + 100
