"""Whether a registered schedule really ticks: its due time moves on by more than our own writes."""

from dataclasses import dataclass

from tickkeeper.api.conditions import Reason, Status
from tickkeeper.schedules.observed import Observed
from tickkeeper.schedules.plan import Plan, State


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition without its times."""

    status: Status
    reason: Reason
    message: str = ""


AWAITING = Verdict(Status.UNKNOWN, Reason.AWAITING_FIRST_TICK, "registered; its first tick is still to come")
TICKING = Verdict(Status.TRUE, Reason.TICKING, "its ticks are taken by workers")


@dataclass(frozen=True, slots=True)
class TickWatch:
    """The verdict so far, and the due time (epoch ms) that a tick must move on from."""

    verdict: Verdict = AWAITING
    baseline: int | None = None

    @property
    def settled(self) -> bool:
        """Whether a schedule that looks healthy needs no closer look."""
        return self.verdict.status is Status.TRUE

    def judge(self, plan: Plan, seen: Observed | None) -> "TickWatch":
        """The next verdict, after a look that found ``plan``; ``seen`` is what is there now, None for plainly
        healthy."""
        if plan.state is State.OVERDUE:
            assert plan.reason is not None
            return TickWatch(Verdict(Status.FALSE, plan.reason, plan.message), seen.score if seen else self.baseline)
        if seen is None or seen.score is None:
            return self
        if plan.acts or self.baseline is None:
            # Our own writes move the due time too; what counts is what moves after them.
            ticked_before = not plan.acts and seen.record is not None and seen.record.iterations > 1
            return TickWatch(TICKING if ticked_before and self._never_judged else self.verdict, seen.score)
        if plan.state is State.HEALTHY and seen.score > self.baseline:
            return TickWatch(TICKING, seen.score)
        return self

    @property
    def _never_judged(self) -> bool:
        return self.verdict.status is Status.UNKNOWN
