"""How long, and which random numbers: MINUTES, SEED, QUICK."""

import os
from collections.abc import Mapping

from benchmarks.lab.harm import HarmSettings

_MINUTES = "10"


class Settings(HarmSettings):
    """See there."""

    @property
    def pace(self) -> float:
        """By which times of harm and of rest are multiplied."""
        return 0.2 if self.quick else 1.0


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Raises ValueError with the variable, the value and the rule."""
    return Settings.read(environment, minutes=_MINUTES)
