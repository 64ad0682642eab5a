"""Exactly once, a list at a time: one INSERT of the whole list in the transaction in which its rows leave."""

from typing import Any

from tickkeeper.worker import Row, handler


@handler("bench.row", batch=True, transaction=True)
async def insert(rows: list[Row], connection: Any) -> None:
    """One call for a list."""
    await connection.execute("INSERT INTO effects (id) SELECT unnest(%s::bigint[])", ([row.id for row in rows],))
