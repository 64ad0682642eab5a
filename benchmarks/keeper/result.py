"""What a row of the table holds, and what it is held to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.lab.figures import number, spread


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: what was measured, one value for each run, and the floor of the same runs."""

    what: str
    unit: str
    here: Sequence[float]
    floor: Sequence[float] = ()

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """What, here, floor, runs."""
        return f"{self.what} [{self.unit}]", spread(self.here), spread(self.floor), str(len(self.here))


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that must hold."""

    name: str
    value: float
    unit: str
    wanted: str
    met: bool

    def __str__(self) -> str:
        verdict = "met" if self.met else "missed"
        return f"bar {self.name}: {number(self.value)} {self.unit}, wanted {self.wanted}, {verdict}"


@dataclass(slots=True)
class Row:
    """One row of the table: its figures, its bars, and everything that was measured."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def at_most(self, name: str, value: float, unit: str, bound: float, note: str = "") -> None:
        """Add a bar: ``value`` must not exceed ``bound``; ``note`` says what the bound is made of."""
        wanted = f"<= {number(bound)}" + (f" {note}" if note else "")
        self.bars.append(Bar(name, value, unit, wanted, value <= bound))

    def at_least(self, name: str, value: float, unit: str, bound: float, note: str = "") -> None:
        """Add a bar: ``value`` must reach ``bound``; ``note`` says what the bound is made of."""
        wanted = f">= {number(bound)}" + (f" {note}" if note else "")
        self.bars.append(Bar(name, value, unit, wanted, value >= bound))


def ratios(here: Sequence[float], floor: Sequence[float]) -> list[float]:
    """Each run's value in multiples of the same run's floor."""
    return [mine / bare for mine, bare in zip(here, floor, strict=True)]
