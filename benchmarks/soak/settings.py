"""How long, how many, and which random numbers: MINUTES, SEED, QUICK."""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.lab.schedules import Schedule

_INTERVALS_MS = (1_000, 2_000, 5_000, 10_000, 20_000)
_QUICK_INTERVALS_MS = (1_000, 2_000)
#: One in so many follows cron, every minute.
_CRON = 20
_QUEUES = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """``seed`` decides the faults, their order and their targets; not what the clock makes of them."""

    minutes: float
    seed: int
    quick: bool

    def schedules(self) -> list[Schedule]:
        """What is to be kept alive: 200 of several intervals, some by cron; 12 without cron when quick."""
        count, intervals = (12, _QUICK_INTERVALS_MS) if self.quick else (200, _INTERVALS_MS)
        return [
            Schedule(f"s{index}", f"soak-{index % _QUEUES}", self._every(index, intervals)) for index in range(count)
        ]

    def _every(self, index: int, intervals: tuple[int, ...]) -> int:
        return 0 if not self.quick and index % _CRON == 0 else intervals[index // _QUEUES % len(intervals)]


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Raises ValueError with the variable, the value and the rule."""
    minutes, seed = environment.get("MINUTES") or "15", environment.get("SEED") or ""
    try:
        span = float(minutes)
    except ValueError:
        span = 0.0
    if not 0 < span <= 1440:
        raise ValueError(f"MINUTES={minutes}: a number above 0, at most 1440")
    if seed and not seed.isdecimal():
        raise ValueError(f"SEED={seed}: a whole number")
    chosen = int(seed) if seed else random.SystemRandom().randrange(1_000_000)
    return Settings(span, chosen, quick=environment.get("QUICK", "") not in ("", "0"))
