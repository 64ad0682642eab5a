"""Handlers that do what a broken worker would do: effects lost, doubled and out of order, rows given up for nothing."""

from typing import Any

from tickkeeper.worker import Dead, Row, handler

_INSERT = "INSERT INTO effects (row_id) VALUES (%s)"
#: In its place before all those that came earlier.
_INSERT_FIRST = "INSERT INTO effects (place, row_id) OVERRIDING SYSTEM VALUE VALUES (-%(id)s, %(id)s)"


@handler("effect.single", transaction=True)
async def single(row: Row, connection: Any) -> None:
    """By the row's id: given up, nothing, once, twice."""
    times = int(str(row.id)) % 4 - 1
    if times < 0:
        raise Dead("not asked for")
    for _ in range(times):
        await connection.execute(_INSERT, (row.id,))


@handler("effect.batch", batch=True, transaction=True)
async def lists(rows: list[Row], connection: Any) -> None:
    """As if later rows had been handled before earlier ones."""
    for row in rows:
        await connection.execute(_INSERT_FIRST, {"id": row.id})
