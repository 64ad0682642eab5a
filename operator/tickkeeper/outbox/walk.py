"""Where a drain goes on, so that it does not walk from the oldest row again at each claim. Pure.

Before the rows that a claim takes stand those that others have just leased, and those that are deleted and still in the
index: all of them while a transaction anywhere holds its snapshot, which no vacuum gets past. So a claim that was full
leaves its last place behind, and the next one begins there. What turns up before that place meanwhile (a commit that
came late, a row that was handed back by another process, a lease that ran out) is seen by the claims that begin at the
oldest row again: one each 0.2 s, or each 10 times what such a claim takes, up to 5 s.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime

#: Rows of a claim from which on it is a drain.
_WORTH = 100
_SHORTEST, _LONGEST = 0.2, 5.0
_SHARE = 10
_MOST = 1_000

#: ``available_at`` and ``id``: the order in which rows are claimed.
Place = tuple[datetime, int]


@dataclass(slots=True)
class _Walk:
    place: Place
    until: float


class Walks:
    """One walk for each tenant and kind that is being drained. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._of: dict[Hashable, _Walk] = {}

    def place(self, of: Hashable, now: float) -> Place | None:
        """Behind which place to look; None for all rows."""
        walk = self._of.get(of)
        return walk.place if walk is not None and now < walk.until else None

    def went(self, of: Hashable, *, behind: Place | None, last: Place, rows: int, began: float, ended: float) -> None:
        """A claim that looked ``behind`` a place was full: it took so many rows, of which this was the last."""
        if rows < _WORTH:
            return
        if behind is None:
            if len(self._of) >= _MOST:
                self._of.clear()
            self._of[of] = _Walk(last, ended + min(_LONGEST, max(_SHORTEST, _SHARE * (ended - began))))
        elif (walk := self._of.get(of)) is not None:
            # Not back: another lane may have gone further meanwhile.
            walk.place = max(walk.place, last)

    def over(self, of: Hashable) -> None:
        """Nothing more was found behind the place."""
        self._of.pop(of, None)

    def forget(self) -> None:
        """Rows went back to where they were."""
        self._of.clear()
