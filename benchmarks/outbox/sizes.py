"""How much is measured: the whole of it, or so little that only the measuring itself is tried (QUICK=1)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.keeper.asked import is_quick, runs_asked


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts, and times in seconds unless the name says ms."""

    runs: int = 3
    drain_runs: int = 5
    #: a drain whose runs lie further apart is measured again, so many times at most
    again: int = 2
    batch: int = 500
    drained: int = 100_000
    peer_rows: int = 100_000
    #: single rows with one INSERT each are slow for everybody
    single_rows: int = 20_000
    ordered: int = 50_000
    keys: int = 1_000
    faulty: int = 20_000
    inflow_a_second: int = 1_000
    inflow: float = 20.0
    lateness: float = 20.0
    every_ms: int = 100
    held: int = 60_000
    sampled: int = 10_000_000
    sampled_tenants: int = 5_000
    rest: float = 20.0
    many: int = 1_000_000
    warm: int = 2_000


_QUICK = Sizes(
    runs=1,
    drain_runs=1,
    again=0,
    batch=100,
    drained=1_000,
    peer_rows=400,
    single_rows=200,
    ordered=400,
    keys=20,
    faulty=400,
    inflow_a_second=100,
    inflow=2.0,
    lateness=2.0,
    held=600,
    sampled=5_000,
    sampled_tenants=50,
    rest=1.0,
    many=1_000,
    warm=50,
)


def sizes(environment: Mapping[str, str] = os.environ) -> Sizes:
    """What QUICK and RUNS ask for. Raises ValueError with the variable, the value and the rule."""
    found = _QUICK if is_quick(environment) else Sizes()
    runs = runs_asked(environment)
    return found if runs is None else replace(found, runs=runs, drain_runs=runs)
