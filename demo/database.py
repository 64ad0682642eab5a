"""The demo's database: the outbox, a producer that may do nothing but enqueue, and what was delivered."""

import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from embedded.postgres import Postgres
from tickkeeper.outbox import NewRow, enqueue_many_sync

NAME = "app"
_SET_UP = """
CREATE TABLE deliveries (
    row_id bigint PRIMARY KEY,
    tenant_id text NOT NULL,
    kind text NOT NULL,
    payload jsonb NOT NULL,
    delivered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    times integer NOT NULL DEFAULT 1
);
GRANT USAGE ON SCHEMA tickkeeper TO producer, worker;
GRANT EXECUTE ON FUNCTION tickkeeper.enqueue TO producer;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tickkeeper TO worker;
GRANT EXECUTE ON FUNCTION tickkeeper.outbox_mend TO worker;
GRANT SELECT, INSERT, UPDATE ON deliveries TO worker;
"""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Rows of a set: how many were delivered, when the first and the last of them (epoch seconds), to which tenants."""

    rows: int
    first: float
    last: float
    tenants: frozenset[str]


class Database:
    """One database of the embedded PostgreSQL. ``owner`` migrates, ``worker`` delivers; the producer stays in here."""

    def __init__(self, postgres: Postgres) -> None:
        """Create the database and its roles; ``set_up`` follows once the outbox is migrated."""
        self.owner = postgres.create_database(NAME)
        passwords = {role: secrets.token_hex(16) for role in ("producer", "worker")}
        with psycopg.connect(self.owner, autocommit=True) as connection:
            for role, password in passwords.items():
                statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                connection.execute(statement.format(sql.Identifier(role), sql.Literal(password)))
        self.worker = _as_role(self.owner, "worker", passwords["worker"])
        self._producer_dsn = _as_role(self.owner, "producer", passwords["producer"])
        self.enqueued: set[int] = set()

    def set_up(self) -> None:
        """The application's own table, and who may do what."""
        self._reader = psycopg.connect(self.owner, autocommit=True)
        self._reader.execute(_SET_UP)
        self._producer = psycopg.connect(self._producer_dsn)

    def enqueue(self, tenant: str, count: int = 1) -> list[int]:
        """Put rows into the outbox, in one transaction, as the producer. Returns their ids."""
        with self._producer.transaction():
            rows = [NewRow(tenant, "mail.welcome", {"to": f"user-{place}@{tenant}"}) for place in range(count)]
            ids = [row.id for row in enqueue_many_sync(self._producer, rows)]
        self.enqueued.update(ids)
        return ids

    def delivered(self, ids: list[int]) -> Delivered:
        """What became of these rows."""
        found = self._reader.execute(
            """
            SELECT count(*), extract(epoch FROM min(delivered_at))::float8,
                   extract(epoch FROM max(delivered_at))::float8, array_agg(DISTINCT tenant_id)
              FROM deliveries WHERE row_id = ANY (%s)
            """,
            [ids],
        ).fetchone()
        assert found is not None
        return Delivered(found[0], found[1] or 0.0, found[2] or 0.0, frozenset(found[3] or ()))

    def delivered_twice(self) -> int:
        """How many rows were delivered more than once."""
        found = self._reader.execute("SELECT count(*) FROM deliveries WHERE times > 1").fetchone()
        assert found is not None
        return int(found[0])

    def close(self) -> None:
        """Close its connections. Idempotent."""
        for name in ("_reader", "_producer"):
            if connection := self.__dict__.pop(name, None):
                connection.close()


def _as_role(dsn: str, role: str, password: str) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{role}:{password}@{parts.hostname}:{parts.port}"))
