"""The display: one line for each thing done. A table and a strip of ticks on a terminal, plain lines anywhere else."""

import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from demo.watch import Watch

_STRIP_CELLS = 88
_LIVE_SECONDS = 22.0
_ROWS_A_LINE = 2
_OTHER_ROWS = 9
#: by whether it ticked and whether it was gone
_MARKS = {(False, False): "-", (True, False): "|", (False, True): "x", (True, True): "+"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: ``at`` is seconds since the start; ``healed`` and ``next_tick`` are seconds from the fault."""

    at: float
    label: str
    done: str
    seen: str
    healed: float | None = None
    next_tick: float | None = None


class Timeline(Protocol):
    """What the demo tells as it goes."""

    def title(self, text: str) -> None:
        """What this is, and on which parts."""

    def doing(self, label: str, text: str) -> None:
        """What is being done now."""

    def line(self, label: str, done: str, seen: str, healed: float | None = None, tick: float | None = None) -> None:
        """What was done, what was seen, and how long it took."""

    def follow(self, watch: Watch) -> None:
        """Show its ticks from now on."""

    def close(self) -> None:
        """Nothing changes any more; the strip of the whole run is shown. Idempotent."""


def make_timeline() -> Timeline:
    """For this standard output: lines where it is no terminal."""
    console = Console()
    return _Table(console) if console.is_terminal and not console.is_dumb_terminal else _Lines()


def say(text: str = "") -> None:
    """A line after, or without, the timeline."""
    print(text, flush=True)


def span(seconds: float | None) -> str:
    """``23 ms``, ``1.92 s``; empty for None."""
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


class _Base:
    def __init__(self) -> None:
        self._began = time.time()
        self._watch: Watch | None = None
        self._closed = False

    def follow(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def _elapsed(self) -> float:
        return time.time() - self._began

    def _strips(self, since: float) -> list[str]:
        return strips(self._watch, since, time.time(), _STRIP_CELLS) if self._watch else []


class _Lines(_Base):
    """For logs: each line stands by itself."""

    def title(self, text: str) -> None:
        say(text)

    def doing(self, label: str, text: str) -> None:
        """Lines tell what is done already."""

    def line(self, label: str, done: str, seen: str, healed: float | None = None, tick: float | None = None) -> None:
        times = [f"back after {span(healed)}"] * (healed is not None) + [f"next tick after {span(tick)}"] * (
            tick is not None
        )
        say(f"{self._elapsed:6.1f} s  {label:3} {done}  ->  {'; '.join([*times, seen])}")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for text in self._strips(self._began):
                say(text)


class _Table(_Base):
    """For people: all of it on one screen."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._lines: list[Line] = []
        self._title = ""
        self._now = ("", "")
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8)
        self._live.start()

    def title(self, text: str) -> None:
        self._title = text

    def doing(self, label: str, text: str) -> None:
        self._now = (label, text)

    def line(self, label: str, done: str, seen: str, healed: float | None = None, tick: float | None = None) -> None:
        self._lines.append(Line(self._elapsed, label, done, seen, healed, tick))
        self._now = ("", "")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._now = ("", "")
            self._live.stop()

    @property
    def _fitting(self) -> int:
        """How many of the newest lines a small screen has room for; at the end all of them are shown."""
        return len(self._lines) if self._closed else max(3, (self._console.height - _OTHER_ROWS) // _ROWS_A_LINE)

    def _render(self) -> RenderableType:
        table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1, 0, 0), title=self._title, title_justify="left")
        table.add_column("at", justify="right", style="dim", no_wrap=True)
        table.add_column("", style="bold cyan", no_wrap=True)
        table.add_column("what was done", ratio=4)
        table.add_column("what was seen", ratio=6)
        table.add_column("back after", justify="right", style="green", no_wrap=True)
        table.add_column("next tick", justify="right", style="green", no_wrap=True)
        for line in self._lines[-self._fitting :]:
            times = (span(line.healed), span(line.next_tick))
            table.add_row(f"{line.at:.1f} s", line.label, line.done, line.seen, *times)
        since = self._began if self._closed else time.time() - _LIVE_SECONDS
        strip = Text("\n".join(self._strips(since)), no_wrap=True, overflow="crop")
        label, doing = self._now
        self._spinner.update(text=Text.assemble((label, "bold cyan"), " " * bool(label), doing))
        return Group(table, strip, *([self._spinner] if doing else []))


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


def wrap(lines: Sequence[str]) -> str:
    """Log lines, indented."""
    return textwrap.indent("\n".join(lines) or "(nothing)", "    ")
