"""The application's side: what the worker does with a row. It writes into a table of its own, keyed by the row's id."""

import os

import psycopg
from psycopg.types.json import Jsonb

from tickkeeper.worker import Row, handler

# A row may be delivered again (at least once): its id is the key that makes the second time harmless, and counted.
_DELIVER = """
INSERT INTO deliveries (row_id, tenant_id, kind, payload) VALUES (%s, %s, %s, %s)
ON CONFLICT (row_id) DO UPDATE SET times = deliveries.times + 1
"""


@handler("mail.*")
async def deliver(row: Row) -> None:
    """Deliver one row."""
    async with await psycopg.AsyncConnection.connect(os.environ["DEMO_DATABASE_URL"], autocommit=True) as connection:
        await connection.execute(_DELIVER, (row.id, row.tenant_id, row.kind, Jsonb(row.payload)), prepare=False)
