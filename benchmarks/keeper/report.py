"""The table, and everything that was measured as one document."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.keeper.result import Row
from benchmarks.lab.results import machine

_HEAD = ("what", "here", "floor", "runs")


def table(rows: Sequence[Row]) -> str:
    """The figures, one line each: median (lowest-highest) over the runs."""
    lines = [_HEAD]
    for row in rows:
        lines += [(f"{row.name}: {cells[0]}", *cells[1:]) for cells in (figure.cells for figure in row.figures)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([padded[0], "-" * len(padded[0]), *padded[1:]])


def show(rows: Sequence[Row], failed: Sequence[str]) -> None:
    """Print the table, then each bar, then what could not be measured."""
    print(table(rows))
    print()
    for row in rows:
        for bar in row.bars:
            print(bar)
    for line in failed:
        print(f"not measured: {line}")


def document(rows: Sequence[Row], sizes: Any) -> dict[str, Any]:
    """Everything that was measured; ``sizes`` is a dataclass."""
    return {"machine": machine(), "sizes": asdict(sizes), "rows": [asdict(row) for row in rows]}
