"""Remembers the id of each row that it is called with."""

from benchmarks.outbox.records import Record
from tickkeeper.worker import Row, handler

_ids = Record("seen", "q")


@handler("bench.row")
async def remember(row: Row) -> None:
    """One call."""
    _ids.values.append(int(row.id))
