"""``python -m benchmarks.outbox``: print the table and the bars, keep the raw figures.

ROWS=name,name takes some of the rows; QUICK=1 measures so little that only the measuring is tried; RUNS=n (default 3,
drains 5); RESULTS=folder is where the raw figures go.
"""

import os
import sys
from pathlib import Path

import psycopg
from redis import RedisError

from benchmarks.keeper.asked import rows_asked
from benchmarks.keeper.report import document, show
from benchmarks.keeper.result import Row
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.lab.results import keep
from benchmarks.outbox.rows import NAMES, PLAYS
from benchmarks.outbox.sizes import Sizes, sizes
from embedded.errors import MissingPart, PartFailed

_RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> int:
    """0: measured, whatever the bars say; 1: something could not be measured; 2: a variable is wrong."""
    try:
        chosen, amount = rows_asked(os.environ.get("ROWS", ""), NAMES), sizes()
    except ValueError as error:
        print(f"bench-outbox: {error}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    failed: list[str] = []
    try:
        for name in chosen:
            failed += _play(name, amount, rows)
    except KeyboardInterrupt:
        print("bench-outbox: interrupted", file=sys.stderr)
        return 130
    show(rows, failed)
    kept = keep("outbox", document(rows, amount), Path(os.environ.get("RESULTS") or _RESULTS))
    say(f"raw figures: {kept}")
    return 1 if failed else 0


def _play(name: str, amount: Sizes, rows: list[Row]) -> list[str]:
    before = load()
    try:
        row = PLAYS[name](amount)
    except (MissingPart, PartFailed, TimeoutError, psycopg.Error, RedisError) as error:
        say(f"failed: {error}")
        return [f"{name}: {str(error).splitlines()[0]}"]
    row.raw["load"] = [before, load()]
    rows.append(row)
    return []


if __name__ == "__main__":
    sys.exit(main())
