"""One scheduler in the operator's charge, and what a look at it came to."""

from dataclasses import dataclass, field, replace
from enum import Enum

from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import Wanted
from tickkeeper.schedules.desired import Desired
from tickkeeper.schedules.history import History
from tickkeeper.schedules.observed import Observed
from tickkeeper.schedules.plan import Plan, State
from tickkeeper.schedules.ticking import TickWatch, Verdict


class Intent(Enum):
    """What is to become of a scheduler."""

    KEEP = "keep"
    REMOVE = "remove"


@dataclass(eq=False, slots=True)
class Charge:
    """A scheduler that one Redis must hold, or must not. Its memory lasts as long as the operator's process."""

    desired: Desired
    intent: Intent = Intent.KEEP
    #: digest of the scheduler's hash when it was last found right
    digest: str | None = None
    watch: TickWatch = field(default_factory=TickWatch)
    history: History = field(default_factory=History)
    #: the last look found it registered as it must be
    in_place: bool = False
    #: this process registered it, or found it right: whoever overwrites it since then, it is ours
    ours: bool = False
    #: it has been found in place at least once, and the status says so
    seen_in_place: bool = False
    #: what was said of its Redis when it was last reported as healthy, None where anything else was told since:
    #: as long as that is so, another look that finds it healthy is worth no word
    told_healthy: Verdict | None = None
    #: the queue it lies in, the same in every edition
    queue: QueueKey = field(init=False)
    _wanted: Wanted | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        place = self.desired.place
        self.queue = QueueKey(place.prefix, place.queue)

    def edit(self, desired: Desired) -> None:
        """Take in another edition of the same scheduler."""
        self.desired = desired
        self.digest = None
        self.told_healthy = None

    @property
    def claim(self) -> Desired:
        """What it must be, by what is known by now."""
        return replace(self.desired, adopts_unstamped=True) if self.ours else self.desired

    @property
    def wanted(self) -> Wanted:
        """What the next look is to find out: its due time too, as long as it is not known to tick."""
        digest = self.digest if self.intent is Intent.KEEP else None
        watched = not self.watch.settled
        known = self._wanted
        if known is None or known.desired is not self.desired or known.digest != digest or known.watched != watched:
            # Kept, since it is the same with every sweep: making it anew takes longer than the look itself.
            known = self._wanted = Wanted(self.desired, digest, watched=watched)
        return known


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Redis could not be asked. Never the same as "missing"."""

    message: str
    #: other credentials might mend it
    access: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a look found first, and what is there now."""

    plan: Plan
    #: after the plan was carried out; the same as ``plan`` where it asked for nothing
    after: Plan
    seen: Observed | None
    redis_safe: Verdict
    #: BullMQ or Redis refused this one scheduler's write
    error: str | None = None

    @property
    def mended(self) -> bool:
        """Whether a plan was carried out and nothing is left to do."""
        return self.plan.acts and not self.after.acts and self.error is None

    @property
    def in_place(self) -> bool:
        """Whether the scheduler is registered as it must be."""
        return self.error is None and self.after.state in (State.HEALTHY, State.OVERDUE)

    @property
    def healthy(self) -> bool:
        """Whether there was nothing to do and there is nothing to tell of it but that."""
        return self.error is None and self.plan.state is State.HEALTHY


Outcome = Found | Unreachable
