"""The handlers of the workers that are harmed: effects in the same database, row by row and by lists.

Some rows fail a few times, some are given up: what a row does stands in its payload. The table of effects has no unique
column: an effect that happens twice must be seen.
"""

import asyncio
from typing import Any

from tickkeeper.worker import Dead, Retry, Row, handler

_INSERT = "INSERT INTO effects (row_id) VALUES (%s)"
_INSERT_ALL = """
INSERT INTO effects (row_id)
SELECT r.id FROM unnest(%s::bigint[]) WITH ORDINALITY AS r (id, place) ORDER BY r.place
"""
_AGAIN = 0.05


@handler("effect.single", transaction=True)
async def single(row: Row, connection: Any) -> None:
    """One INSERT; then what the row asks for, so that there is something to undo."""
    await connection.execute(_INSERT, (row.id,))
    await asyncio.sleep(row.payload["ms"] / 1000)
    _as_asked(row)


@handler("effect.batch", batch=True, transaction=True)
async def lists(rows: list[Row], connection: Any) -> None:
    """One INSERT of the list. A row that fails takes the list along, and is alone the next time."""
    await connection.execute(_INSERT_ALL, ([row.id for row in rows],))
    await asyncio.sleep(max(row.payload["ms"] for row in rows) / 1000)
    if len(rows) > 1 and any(row.payload["dies"] for row in rows):
        raise Retry(_AGAIN, "one of them is to be given up, not all")
    for row in rows:
        _as_asked(row)


def _as_asked(row: Row) -> None:
    if row.payload["dies"]:
        raise Dead("as asked")
    if row.attempts <= row.payload["fails"]:
        raise Retry(_AGAIN, "as asked")
