"""What all commands that do harm have in common: how long, by which random numbers, their frame, some of the harm."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from embedded.errors import MissingPart, PartFailed


@dataclass(frozen=True, slots=True)
class HarmSettings:
    """``seed`` decides the harm, its order and its targets; not what the clock makes of them."""

    minutes: float
    seed: int
    quick: bool

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ, *, minutes: str) -> Self:
        """MINUTES, SEED, QUICK. Raises ValueError with the variable, the value and the rule."""
        minutes, seed = environment.get("MINUTES") or minutes, environment.get("SEED") or ""
        try:
            span = float(minutes)
        except ValueError:
            span = 0.0
        if not 0 < span <= 1440:
            raise ValueError(f"MINUTES={minutes}: a number above 0, at most 1440")
        if seed and not seed.isdecimal():
            raise ValueError(f"SEED={seed}: a whole number")
        chosen = int(seed) if seed else random.SystemRandom().randrange(1_000_000)
        return cls(span, chosen, quick=environment.get("QUICK", "") not in ("", "0"))


Asked = TypeVar("Asked", bound=HarmSettings)


def command(name: str, read: Callable[[], Asked], do: Callable[[Asked], int]) -> int:
    """The exit code of ``do``; 1: a part failed; 2: a variable is wrong. What went wrong is said."""
    try:
        asked = read()
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    try:
        return do(asked)
    except (MissingPart, PartFailed) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130


def sequence(dice: random.Random, weights: Mapping[str, int]) -> Iterator[str]:
    """Names of faults for ever: first each once, so that a short run has them all, then by their weight."""
    first = list(weights)
    dice.shuffle(first)
    yield from first
    while True:
        yield dice.choices(list(weights), list(weights.values()))[0]


def last(seconds: float, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Harm that lasts so long, and ends whatever happens."""
    begin()
    try:
        time.sleep(seconds)
    finally:
        end()
