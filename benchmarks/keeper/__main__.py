"""``python -m benchmarks.keeper``: print the table and the bars, keep the raw figures.

ROWS=name,name takes some of the rows; QUICK=1 measures so little that only the measuring is tried; RUNS=n (default 3);
RESULTS=folder is where the raw figures go.
"""

import os
import sys
from pathlib import Path

from benchmarks.keeper.asked import rows_asked
from benchmarks.keeper.report import document, show
from benchmarks.keeper.result import Row
from benchmarks.keeper.rows import NAMES, SCENES, Play
from benchmarks.keeper.sizes import Sizes, sizes
from benchmarks.lab.progress import say
from benchmarks.lab.results import keep
from embedded.errors import MissingPart, PartFailed

_RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> int:
    """0: measured, whatever the bars say; 1: something could not be measured; 2: a variable is wrong."""
    try:
        chosen, amount = set(rows_asked(os.environ.get("ROWS", ""), NAMES)), sizes()
    except ValueError as error:
        print(f"bench-keeper: {error}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    failed: list[str] = []
    try:
        for scene in SCENES:
            if wanted := chosen & set(scene.rows):
                failed += _play(scene.play, amount, frozenset(wanted), rows)
    except KeyboardInterrupt:
        print("bench-keeper: interrupted", file=sys.stderr)
        return 130
    show(rows, failed)
    kept = keep("keeper", document(rows, amount), Path(os.environ.get("RESULTS") or _RESULTS))
    say(f"raw figures: {kept}")
    return 1 if failed else 0


def _play(play: Play, amount: Sizes, wanted: frozenset[str], rows: list[Row]) -> list[str]:
    before = len(rows)
    try:
        for row in play(amount, wanted):
            rows.append(row)  # noqa: PERF402 - those before a failure are kept
    except (MissingPart, PartFailed, TimeoutError) as error:
        missing = wanted - {row.name for row in rows[before:]}
        say(f"failed: {error}")
        return [f"{', '.join(sorted(missing))}: {str(error).splitlines()[0]}"]
    return []


if __name__ == "__main__":
    sys.exit(main())
