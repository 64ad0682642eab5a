"""The table, the bars, and the file of raw figures."""

import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.keeper.result import Row
from benchmarks.keeper.sizes import Sizes
from embedded.versions import table as versions

_HEAD = ("what", "here", "floor", "runs")


def table(rows: Sequence[Row]) -> str:
    """The figures, one line each: median (lowest-highest) over the runs."""
    lines = [_HEAD]
    for row in rows:
        lines += [(f"{row.name}: {cells[0]}", *cells[1:]) for cells in (figure.cells for figure in row.figures)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([padded[0], "-" * len(padded[0]), *padded[1:]])


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "parts": {part.name: part.version for part in versions()},
    }


def keep(kind: str, document: dict[str, Any], folder: Path) -> Path:
    """Write a document of raw figures; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{kind}-{now:%Y%m%dT%H%M%SZ}.json"
    whole = {"at": now.isoformat(timespec="seconds"), **document}
    path.write_text(json.dumps(_finite(whole), indent=1, allow_nan=False) + "\n")
    return path


def document(rows: Sequence[Row], sizes: Sizes) -> dict[str, Any]:
    """Everything that was measured."""
    return {"machine": machine(), "sizes": asdict(sizes), "rows": [asdict(row) for row in rows]}


def _finite(value: Any) -> Any:
    """JSON has no infinity: what never came is null."""
    match value:
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case float():
            return value if math.isfinite(value) else None
    return value
