"""What was done to a schedule lately, so that two writers who undo each other never make a hot loop."""

from collections import deque
from dataclasses import dataclass, field

from tickkeeper.schedules.checks import Standing
from tickkeeper.schedules.plan import Plan, State

#: This many corrections within WINDOW seconds are a fight, no longer a drift.
_PATIENCE = 3
_WINDOW = 600.0
_FIRST_HOLD = 15.0
_LONGEST_HOLD = 300.0
#: Resets give up a due time: more than this many in the window would keep a schedule from ticking at all.
_RESETS = 2


@dataclass(slots=True)
class History:
    """Times (seconds, any monotonic clock) of corrections and resets of one schedule."""

    _corrections: deque[float] = field(default_factory=deque)
    _resets: deque[float] = field(default_factory=deque)

    def note(self, plan: Plan, now: float) -> None:
        """Remember a plan that was carried out."""
        if plan.state is State.DIFFERS:
            self._corrections.append(now)
        elif plan.state in (State.CLOCK_AHEAD, State.OFF_PHASE):
            self._resets.append(now)

    def standing(self, now: float, *, own_clock_off: bool = False) -> Standing:
        """What the core needs to know at ``now``."""
        for times in (self._corrections, self._resets):
            while times and now - times[0] > _WINDOW:
                times.popleft()
        return Standing(
            held_back=bool(self._corrections) and now < self._corrections[-1] + self.hold_seconds(),
            resets_used_up=len(self._resets) >= _RESETS,
            own_clock_off=own_clock_off,
        )

    def hold_seconds(self) -> float:
        """How long the last correction holds the next one back: 0, then doubling from 15 s to 5 min."""
        over = len(self._corrections) - _PATIENCE
        return 0.0 if over < 0 else min(_LONGEST_HOLD, _FIRST_HOLD * 2.0**over)
