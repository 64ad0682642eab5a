"""How long, and which random numbers: MINUTES, SEED, QUICK."""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass

_MINUTES = "10"


@dataclass(frozen=True, slots=True)
class Settings:
    """``seed`` decides the harm, its order and its targets; not what the clock makes of them."""

    minutes: float
    seed: int
    quick: bool

    @property
    def pace(self) -> float:
        """By which times of harm and of rest are multiplied."""
        return 0.2 if self.quick else 1.0


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Raises ValueError with the variable, the value and the rule."""
    minutes, seed = environment.get("MINUTES") or _MINUTES, environment.get("SEED") or ""
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
