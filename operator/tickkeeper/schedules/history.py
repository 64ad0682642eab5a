"""What was done to a schedule lately, so that two writers who undo each other never make a hot loop."""

from dataclasses import dataclass

from tickkeeper.schedules.checks import Standing
from tickkeeper.schedules.plan import Plan, State

#: Seconds that count as lately.
_WINDOW = 600.0
#: Seconds within which a newer generation than ours must have been told to us.
_NEWS = 15.0


@dataclass(frozen=True, slots=True)
class _Patience:
    """How many repetitions are taken as they come; each one more doubles the pause from ``first`` to ``longest``."""

    free: int
    first: float
    longest: float

    def hold(self, count: int) -> float:
        over = count - self.free
        return 0.0 if over < 0 else min(self.longest, self.first * 2.0 ** min(over, 10))


#: Another's change undone three times is a fight, no longer a drift.
_CORRECTIONS = _Patience(3, 15.0, 300.0)
#: A removal is healed at once as often as a large rolling deploy makes one; a loop is slowed down.
_HEALS = _Patience(30, 1.0, 15.0)
#: Resets give up a due time: more of them would keep a schedule from ticking at all.
_RESETS = 2


#: Tuples and not deques: most schedules have none of them, and an empty deque takes 0.8 KB.
_Times = tuple[float, ...]


@dataclass(slots=True)
class History:
    """Times (seconds, any monotonic clock) of what was done to one schedule."""

    _corrections: _Times = ()
    _heals: _Times = ()
    _resets: _Times = ()
    _newer_since: float | None = None

    def look(self, plan: Plan, now: float) -> None:
        """Remember what a look found, whether anything was done about it or not."""
        if plan.state is not State.NEWER_GENERATION:
            self._newer_since = None
        elif self._newer_since is None:
            self._newer_since = now

    def note(self, plan: Plan, now: float) -> None:
        """Remember a plan that was carried out."""
        match plan.state:
            case State.DIFFERS:
                self._corrections = (*self._corrections, now)
            case State.CLOCK_AHEAD | State.OFF_PHASE:
                self._resets = (*self._resets, now)
            case State.OUTDATED:
                pass
            case _:
                self._heals = (*self._heals, now)

    def standing(self, now: float, *, own_clock_off: bool = False) -> Standing:
        """What the core needs to know at ``now``."""
        self._corrections = _lately(self._corrections, now)
        self._heals = _lately(self._heals, now)
        self._resets = _lately(self._resets, now)
        return Standing(
            corrections_held=_is_held(self._corrections, _CORRECTIONS, now),
            heals_held=_is_held(self._heals, _HEALS, now),
            resets_used_up=len(self._resets) >= _RESETS,
            newest_is_ours=self._newer_since is not None and now - self._newer_since > _NEWS,
            own_clock_off=own_clock_off,
        )


def _lately(times: _Times, now: float) -> _Times:
    return times if not times or now - times[0] <= _WINDOW else tuple(at for at in times if now - at <= _WINDOW)


def _is_held(times: _Times, patience: _Patience, now: float) -> bool:
    return bool(times) and now < times[-1] + patience.hold(len(times))
