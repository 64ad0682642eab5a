"""A large outbox seen in parts: some tenants with each sample, so that one costs the same however many there are."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """What was seen of some tenants and kinds, or of a whole outbox. Counts may say "at least".

    ``due_at``, ``expired_at``: the earliest due time of a row that is due, and the earliest end of a lease that ran
    out, in seconds since 1970. ``end``: the last tenant and kind of the part, None where it is the last part.
    """

    ready: int
    leased: int
    scheduled: int
    behind: int
    expired: int
    due_at: float | None
    expired_at: float | None
    tenants: tuple[str, ...]
    end: tuple[str, str] | None = None

    @classmethod
    def read(cls, record: Any, clock: float) -> "Part":
        """From a record of sample_all or sample_heads, whose ages are as of ``clock``."""
        ready, leased, scheduled, behind, due_age, expired, expired_age, tenants, *end = record
        return cls(
            ready,
            leased,
            scheduled,
            behind,
            expired,
            None if due_age is None else clock - due_age,
            None if expired_age is None else clock - expired_age,
            tuple(tenants),
            (end[0], end[1]) if end and end[0] is not None else None,
        )


class Walk:
    """Round after round through the parts; what is known is the last whole round, or the first one as far as it got."""

    def __init__(self) -> None:
        self._going: list[Part] = []
        self._whole: list[Part] = []

    @property
    def behind(self) -> tuple[str | None, str | None]:
        """The tenant and kind after which the next part begins; None twice: at the beginning."""
        return (self._going[-1].end if self._going else None) or (None, None)

    @property
    def whole(self) -> bool:
        """Whether every part was seen once."""
        return bool(self._whole)

    def add(self, part: Part) -> None:
        """The part that begins after ``behind`` was seen."""
        self._going.append(part)
        if part.end is None:
            self._whole, self._going = self._going, []

    def known(self) -> Part | None:
        """All parts together; None when there is none yet."""
        parts = self._whole or self._going
        if not parts:
            return None
        return Part(
            ready=sum(part.ready for part in parts),
            leased=sum(part.leased for part in parts),
            scheduled=sum(part.scheduled for part in parts),
            behind=sum(part.behind for part in parts),
            expired=sum(part.expired for part in parts),
            due_at=min((part.due_at for part in parts if part.due_at is not None), default=None),
            expired_at=min((part.expired_at for part in parts if part.expired_at is not None), default=None),
            tenants=tuple(tenant for part in parts for tenant in part.tenants),
        )
