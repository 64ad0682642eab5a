"""How long a row that failed waits for its next attempt."""

from dataclasses import dataclass
from datetime import timedelta

#: 2**30 times the base is beyond any cap; a larger exponent could only overflow.
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """``least(cap, base · 2^(attempts - 1))``, of which a random half to whole is taken.

    With the defaults and the default of 20 attempts, a row that always fails is given up after about 6 hours.
    """

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        for name, value in (("base", self.base), ("cap", self.cap)):
            if not timedelta() < value <= timedelta(days=365):
                raise ValueError(f"back-off {name} is {value}: must be longer than 0 and at most 365 days")

    def seconds(self, attempts: int, chance: float) -> float:
        """The wait after the ``attempts``-th attempt; ``chance`` is a random number of [0, 1)."""
        doublings = min(max(attempts - 1, 0), _MOST_DOUBLINGS)
        return min(self.cap.total_seconds(), self.base.total_seconds() * 2.0**doublings) * (0.5 + chance / 2)
