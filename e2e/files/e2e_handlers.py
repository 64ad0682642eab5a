"""Writes down each row that is handled, and how often."""

import os

import psycopg

from tickkeeper.worker import Row, handler


@handler("e2e.*")
async def deliver(row: Row) -> None:
    """One row."""
    async with await psycopg.AsyncConnection.connect(os.environ["DELIVERIES_URL"], autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO deliveries (row_id) VALUES (%s)"
            " ON CONFLICT (row_id) DO UPDATE SET times = deliveries.times + 1",
            (row.id,),
            prepare=False,
        )
