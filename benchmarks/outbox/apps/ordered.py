"""Remembers for each delivered row its key, its id and when; one row in a hundred fails at its first attempt."""

import os
import time

from benchmarks.outbox.records import Record
from tickkeeper.worker import Retry, Row, handler

_delivered = Record("ordered", "q")
_FAIL_ONE_IN = int(os.environ.get("TICKKEEPER_BENCH_FAIL_ONE_IN", "0"))
_AGAIN = 0.02


@handler("bench.row")
async def deliver(row: Row) -> None:
    """One call: three numbers."""
    if _FAIL_ONE_IN and row.attempts == 1 and int(row.id) % _FAIL_ONE_IN == 0:
        raise Retry(_AGAIN, "as arranged")
    _delivered.values.extend((int(row.payload["key"]), int(row.id), time.time_ns()))
