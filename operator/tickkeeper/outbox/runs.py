"""How many rows a claim lets the first row of an ordering key stand for. Pure, but for what it has learned."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

#: Rows of one run at most; also how far behind a row the rest of its run is looked for.
MAX_RUN = 500

#: More than a row each, so that a claim full of first rows has room left to find out that there is more behind them.
_LEAST_WEIGHT = 1.25
_MOST_WEIGHT = 64.0
_FIRST_WEIGHT = 8.0
#: Keys in a full batch, where there are as many: a worker handles different keys side by side.
_FEWEST_KEYS = 8
_MOST_TENANTS = 1_000


@dataclass(slots=True)
class Habit:
    """What was seen of one tenant: how long its runs are, and whether it has any rows without an ordering key."""

    weight: float = _FIRST_WEIGHT
    only_runs: bool = False

    def weigh(self, limit: int) -> float:
        """How many rows a first row stands for in a claim of ``limit``: a key alone does not fill it."""
        return min(self.weight, max(_LEAST_WEIGHT, limit / _FEWEST_KEYS))

    def ask(self, limit: int) -> int:
        """How many rows to look at for a claim of ``limit``."""
        return max(1, math.ceil(limit / self.weigh(limit))) if self.only_runs else limit

    def learn(self, unordered: int, heads: int, followers: Sequence[int], share: int) -> None:
        """A claim took so many rows without a key, so many first rows, and behind each of them ``followers`` rows of
        at most ``share``."""
        self.only_runs = heads > 0 and not unordered
        if not heads:
            return
        if 2 * sum(each >= share for each in followers) > heads:
            self.weight = min(_MOST_WEIGHT, self.weight * 2)
        else:
            mean = (heads + sum(followers)) / heads
            self.weight = min(_MOST_WEIGHT, max(_LEAST_WEIGHT, mean, self.weight / 2))


def share_of(limit: int, taken: int, heads: int) -> tuple[int, int]:
    """Rows that may still come behind ``heads`` first rows, and how many of them behind each."""
    room = max(0, limit - taken)
    return room, min(MAX_RUN - 1, math.ceil(room / heads)) if heads else 0


class Habits:
    """One ``Habit`` for each tenant lately seen; ``known`` tells whether it has had ordering keys at all."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Habit] = OrderedDict()

    def of(self, tenant_id: str) -> Habit:
        """A tenant's habit; a new one is kept by ``keep`` only."""
        return self._of.get(tenant_id) or Habit()

    def known(self, tenant_id: str) -> bool:
        """Whether rows with a key were seen."""
        return tenant_id in self._of

    def keep(self, tenant_id: str, habit: Habit) -> None:
        """Remember it."""
        self._of[tenant_id] = habit
        self._of.move_to_end(tenant_id)
        while len(self._of) > _MOST_TENANTS:
            self._of.popitem(last=False)
