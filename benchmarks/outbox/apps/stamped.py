"""Remembers how long ago each row was committed, by the time that it carries."""

import time

from benchmarks.outbox.records import Record
from tickkeeper.worker import Row, handler

_ages = Record("ages", "d")


@handler("bench.row")
async def measure(row: Row) -> None:
    """One call: milliseconds."""
    _ages.values.append((time.time() - row.payload["at"]) * 1000)
