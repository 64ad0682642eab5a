"""The display: one line for each thing done. A table and a strip of ticks on a terminal, plain lines anywhere else."""

import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from demo.strip import strips
from demo.watch import Watch

_STRIP_CELLS = 88
_LIVE_SECONDS = 22.0
#: Rows of a narrow screen that a line takes, and rows that are no lines.
_NARROW = 140
_OTHER_ROWS = 9


@dataclass(frozen=True, slots=True)
class Line:
    """One line: ``at`` is seconds since the start; ``back`` and ``tick``: how long after the fault, in words."""

    at: float
    label: str
    done: str
    seen: str
    back: str = ""
    tick: str = ""


class Timeline(Protocol):
    """What the demo tells as it goes. ``now``: what it does at the moment."""

    now: str

    def title(self, text: str) -> None:
        """What this is, and on which parts."""

    def doing(self, label: str, text: str) -> None:
        """What is being done now."""

    def line(self, label: str, done: str, seen: str, back: str = "", tick: str = "") -> None:
        """What was done, what was seen, and how long it took."""

    def follow(self, watch: Watch) -> None:
        """Show its ticks from now on."""

    def close(self) -> None:
        """Nothing changes any more; the strip of the whole run is shown. Idempotent."""


def make_timeline() -> Timeline:
    """For this standard output: lines where it is no terminal."""
    console = Console()
    # Not rich's own is_terminal, which FORCE_COLOR makes true for a file too.
    return _Table(console) if sys.stdout.isatty() and not console.is_dumb_terminal else _Lines()


def say(text: str = "") -> None:
    """A line after, or without, the timeline."""
    print(text, flush=True)


class _Base:
    def __init__(self) -> None:
        self._began = time.time()
        self._watch: Watch | None = None
        self._closed = False
        self.now = "its start"

    def doing(self, label: str, text: str) -> None:
        self.now = f"{label} {text}".strip()

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

    def line(self, label: str, done: str, seen: str, back: str = "", tick: str = "") -> None:
        told = [f"back after {back}"] * bool(back) + [f"next tick after {tick}"] * bool(tick) + [seen]
        say(f"{self._elapsed:6.1f} s  {label:3} {done}  ->  {'; '.join(told)}")

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
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8)
        self._live.start()

    def title(self, text: str) -> None:
        self._title = text

    def line(self, label: str, done: str, seen: str, back: str = "", tick: str = "") -> None:
        self._lines.append(Line(self._elapsed, label, done, seen, back, tick))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._live.stop()

    @property
    def _fitting(self) -> int:
        """How many of the newest lines a small screen has room for; at the end all of them are shown."""
        rows = 3 if self._console.width < _NARROW else 2
        return len(self._lines) if self._closed else max(3, (self._console.height - _OTHER_ROWS) // rows)

    def _render(self) -> RenderableType:
        table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1, 0, 0), title=self._title, title_justify="left")
        table.add_column("at", justify="right", style="dim", no_wrap=True)
        table.add_column("", style="bold cyan", no_wrap=True)
        table.add_column("what was done", ratio=4)
        table.add_column("what was seen", ratio=6)
        table.add_column("back after", justify="right", style="green", no_wrap=True)
        table.add_column("next tick", justify="right", style="green", no_wrap=True)
        for line in self._lines[-self._fitting :]:
            table.add_row(f"{line.at:.1f} s", line.label, line.done, line.seen, line.back, line.tick)
        since = self._began if self._closed else time.time() - _LIVE_SECONDS
        strip = Text("\n".join(self._strips(since)), no_wrap=True, overflow="crop")
        self._spinner.update(text=self.now)
        return Group(table, strip, *([] if self._closed else [self._spinner]))


def wrap(lines: Sequence[str]) -> str:
    """Log lines, indented."""
    return textwrap.indent("\n".join(lines) or "(nothing)", "    ")
