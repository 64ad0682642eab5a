"""Exactly once, row by row: one INSERT each in the transaction in which the row leaves."""

from typing import Any

from tickkeeper.worker import Row, handler


@handler("bench.row", transaction=True)
async def insert(row: Row, connection: Any) -> None:
    """One call."""
    await connection.execute("INSERT INTO effects (id) VALUES (%s)", (row.id,))
