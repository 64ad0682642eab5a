"""What a run measured, beside the bar that it is held to."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number; ``bar`` is the most that it should be."""

    what: str
    value: float
    unit: str
    bar: float | None


class Measurements:
    """The numbers of one run."""

    def __init__(self) -> None:
        self.taken: list[Measurement] = []

    def add(self, what: str, value: float, *, unit: str = "s", bar: float | None = None) -> None:
        """Note one. Whether a bar was kept is said at the end, and judged by people: machines differ."""
        self.taken.append(Measurement(what, round(value, 2), unit, bar))

    def lines(self) -> list[str]:
        """For the terminal."""
        return [
            f"{each.what}: {each.value:g} {each.unit}"
            + ("" if each.bar is None else f" (bar {each.bar:g}: {'kept' if each.value <= each.bar else 'MISSED'})")
            for each in self.taken
        ]

    def write(self, file: Path) -> None:
        """As JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([asdict(each) for each in self.taken], indent=2) + "\n", encoding="utf-8")
