"""What the operator remembers of one resource between two looks."""

import math
from dataclasses import dataclass, field

from tickkeeper.controller.charge import Charge
from tickkeeper.controller.site import Site
from tickkeeper.controller.told import Told
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.report import Report


@dataclass(slots=True)
class Held:
    """A charge, and the Redis that holds it."""

    site: Site
    charge: Charge
    target: Target

    def drop(self) -> None:
        """Look after it no longer."""
        self.site.drop(self.charge)


@dataclass(slots=True)
class Memo:
    """One resource's memory, as long as it keeps its uid."""

    uid: str
    #: what status says, or will as soon as it is written
    told: Told
    held: Held | None = None
    #: the report that ``told`` was made from; None where it may say less than that
    last: Report | None = None
    #: earlier places that are being cleared
    leaving: list[Held] = field(default_factory=list)
    #: an earlier place that could not be cleared in time; told once
    abandoned: Target | None = None
    #: nothing of it is left in Redis (or it cannot be known, and the grace period is over)
    removed: bool = False
    #: when this process began to clear it for a deletion (epoch seconds)
    clearing_since: float | None = None
    #: when an event last told of a heal (monotonic seconds)
    heal_told_at: float = -math.inf
    #: when a status that somebody else changed was last written again (monotonic seconds)
    put_back_at: float = -math.inf
    failures: int = 0

    def tell_again(self) -> None:
        """What the next look finds is worth a report, though it may be what the last one found."""
        if self.held is not None:
            self.held.charge.told_healthy = None
