"""Ticks and absences of each scheduler along a line of characters."""

from collections.abc import Sequence
from itertools import dropwhile

from demo.watch import Watch

#: by whether it ticked and whether it was gone
_MARKS = {(False, False): "-", (True, False): "|", (False, True): "x", (True, True): "+"}


def span(seconds: float) -> str:
    """``23 ms``, ``1.92 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def strips(watch: Watch, since: float, until: float, cells: int) -> list[str]:
    """One line a scheduler and one that explains them: its ticks, and when it was not there."""
    names = sorted({tick.scheduler for tick in tuple(watch.ticks)})
    if not names:
        return []
    width = max(map(len, names))
    cell = (until - since) / cells
    drawn = [f"{name:{width}}  {strip(watch, name, since, cell, cells)}" for name in names]
    return [*drawn, f"{'':{width}}  | tick   x gone, or Redis away   + both   one column is {span(cell)}"]


def strip(watch: Watch, scheduler: str, since: float, cell: float, cells: int) -> str:
    """One character for each ``cell`` seconds; blanks before its first tick."""
    ticks = watch.ticks_of(scheduler)
    first = ticks[0].done if ticks else float("inf")
    gaps = _gaps(watch, scheduler)
    drawn = []
    for index in range(cells):
        start, end = since + index * cell, since + (index + 1) * cell
        ticked = any(start <= tick.done < end for tick in ticks)
        gone = any(gone < end and back > start for gone, back in gaps)
        drawn.append(" " if end <= first else _MARKS[ticked, gone])
    return "".join(drawn)


def _gaps(watch: Watch, scheduler: str) -> Sequence[tuple[float, float]]:
    """When it was missing, after it had been there once."""
    looks = tuple(dropwhile(lambda look: not look.has(scheduler), tuple(watch.looks)))
    ends = [*(look.at for look in looks[1:]), float("inf")]
    return [(look.at, end) for look, end in zip(looks, ends, strict=bool(looks)) if not look.has(scheduler)]
