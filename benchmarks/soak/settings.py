"""How long, how many, and which random numbers: MINUTES, SEED, QUICK."""

import os
from collections.abc import Mapping

from benchmarks.lab.harm import HarmSettings
from benchmarks.lab.schedules import Schedule

_MINUTES = "15"
_INTERVALS_MS = (1_000, 2_000, 5_000, 10_000, 20_000)
_QUICK_INTERVALS_MS = (1_000, 2_000)
#: One in so many follows cron, every minute.
_CRON = 20
_QUEUES = 4


class Settings(HarmSettings):
    """See there."""

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
    return Settings.read(environment, minutes=_MINUTES)
