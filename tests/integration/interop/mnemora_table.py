"""mnemora's table ``outbox`` as its migrations 0001 and 0002 (version 1.0.0) make it; the rest needs pgvector."""

import json
from collections.abc import Iterable

import psycopg

_TABLE = """
CREATE TABLE outbox (
  id            uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  tenant_id     text        NOT NULL,
  kind          text        NOT NULL,
  payload       jsonb       NOT NULL,
  available_at  timestamptz NOT NULL DEFAULT now(),
  claimed_at    timestamptz NULL,
  claimed_by    text        NULL,
  attempts      integer     NOT NULL DEFAULT 0,
  completed_at  timestamptz NULL,
  failed_at     timestamptz NULL,
  last_error    text        NULL,
  created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idx_outbox_pending ON outbox (tenant_id, kind, available_at)
  WHERE completed_at IS NULL AND claimed_at IS NULL;
CREATE INDEX idx_outbox_claimable ON outbox (tenant_id, available_at)
  WHERE completed_at IS NULL AND failed_at IS NULL;
"""


def make_table(database: str) -> None:
    """Create it in the schema public."""
    with psycopg.connect(database) as connection:
        connection.execute(_TABLE)


def put(database: str, numbers: Iterable[int], *, kind: str = "embed", tenant: str = "acme") -> None:
    """Rows as mnemora writes them."""
    with psycopg.connect(database) as connection:
        connection.cursor().executemany(
            "INSERT INTO outbox (tenant_id, kind, payload) VALUES (%s, %s, %s)",
            [(tenant, kind, json.dumps({"memoryId": str(number)})) for number in numbers],
        )


def states(database: str) -> dict[str, int]:
    """How many rows are over, and how."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT count(*) FILTER (WHERE completed_at IS NOT NULL), count(*) FILTER (WHERE failed_at IS NOT NULL),"
            " count(*) FILTER (WHERE completed_at IS NOT NULL AND failed_at IS NOT NULL) FROM outbox"
        ).fetchone()
    assert row is not None
    return dict(zip(("completed", "failed", "both"), row, strict=True))
