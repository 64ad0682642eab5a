"""How much is measured: the whole of it, or so little that only the measuring itself is tried (QUICK=1)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.keeper.asked import is_quick, runs_asked


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts, and times in seconds unless the name says ms."""

    runs: int = 3
    #: jobs that wait before the schedules' own
    waiting: int = 100_000
    removals: int = 200
    thousand: int = 1_000
    thousand_every_ms: int = 30_000
    ten_thousand: int = 10_000
    many_queues: int = 20
    ten_thousand_every_ms: int = 60_000
    steady: float = 300.0
    every_second: float = 20.0
    edited: int = 100
    edits_a_second: int = 100
    edits: float = 30.0
    peers: float = 30.0
    #: after a restart of the operator, how long no API write may come
    quiet: float = 15.0


_QUICK = Sizes(
    runs=1,
    waiting=2_000,
    removals=8,
    thousand=20,
    thousand_every_ms=2_000,
    ten_thousand=40,
    many_queues=4,
    ten_thousand_every_ms=5_000,
    steady=3.0,
    every_second=2.0,
    edited=5,
    edits_a_second=20,
    edits=2.0,
    peers=3.0,
    quiet=2.0,
)


def sizes(environment: Mapping[str, str] = os.environ) -> Sizes:
    """What QUICK and RUNS ask for. Raises ValueError with the variable, the value and the rule."""
    found = _QUICK if is_quick(environment) else Sizes()
    runs = runs_asked(environment)
    return found if runs is None else replace(found, runs=runs)
