"""A row as the in-memory outbox keeps it."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from tickkeeper.outbox.store import DeadRow, KindStats, Row, Shown

Reason = Literal["exhausted", "rejected", "lost"]


@dataclass(slots=True)
class Entry:
    """One row, living or dead. Payload and headers are kept as JSON text, so that no handler can change them."""

    id: int
    tenant_id: str
    kind: str
    payload: str
    headers: str
    dedup_key: str | None
    max_attempts: int
    available_at: datetime
    created_at: datetime
    ordering_key: str | None = None
    #: its own due time while it is behind another row of its ordering_key
    due_at: datetime | None = None
    #: in a handler's transaction: passed over by claims
    locked: bool = False
    #: dead, and the rows behind it wait for it
    blocks: bool = False
    #: it holds its dedup_key: it has not been claimed yet
    open: bool = True
    attempts: int = 0
    lease_id: UUID | None = None
    lease_until: datetime | None = None
    suspect: bool = False
    error: str | None = None
    reason: Reason | None = None
    died_at: datetime | None = None

    def leased(self, now: datetime) -> bool:
        """Under a live lease."""
        return self.lease_until is not None and self.lease_until > now

    def due(self, now: datetime) -> bool:
        """Ready to be claimed."""
        return self.due_at is None and self.available_at <= now and not self.leased(now) and not self.locked

    def put_off(self, until: datetime) -> None:
        """Due later; a row behind another one stays behind it."""
        if self.due_at is None:
            self.available_at = until
        else:
            self.due_at = until

    @property
    def alone(self) -> bool:
        """To be claimed alone: a suspect, or on its last attempt."""
        return self.lease_id is not None or self.suspect or self.attempts + 1 >= self.max_attempts

    def hand_back(self) -> None:
        """The lease ends and the attempt does not count."""
        self.attempts = max(self.attempts - 1, 0)
        self.lease_id = self.lease_until = None

    def as_row(self) -> Row:
        """What a claim gives out."""
        return Row(
            id=self.id,
            tenant_id=self.tenant_id,
            kind=self.kind,
            payload=json.loads(self.payload),
            headers=json.loads(self.headers),
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            available_at=self.due_at or self.available_at,
            created_at=self.created_at,
            suspect=self.suspect,
            dedup_key=self.dedup_key,
            ordering_key=self.ordering_key,
        )

    def as_dead(self) -> DeadRow:
        """What a list of dead letters shows."""
        assert self.reason is not None
        assert self.died_at is not None
        return DeadRow(
            id=self.id,
            tenant_id=self.tenant_id,
            kind=self.kind,
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            reason=self.reason,
            error=self.error,
            created_at=self.created_at,
            died_at=self.died_at,
            dedup_key=self.dedup_key,
            ordering_key=self.ordering_key,
            blocks=self.blocks,
        )

    def shown(self, now: datetime) -> Shown:
        """All there is to see."""
        dead = self.died_at is not None
        return Shown(
            id=self.id,
            tenant_id=self.tenant_id,
            kind=self.kind,
            state=self._state(now),
            payload=json.loads(self.payload),
            headers=json.loads(self.headers),
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            created_at=self.created_at,
            available_at=None if dead else self.due_at or self.available_at,
            lease_until=None if dead else self.lease_until,
            died_at=self.died_at,
            suspect=not dead and (self.suspect or (self.lease_id is not None and not self.leased(now))),
            dedup_key=self.dedup_key,
            error=self.error,
            reason=self.reason,
            ordering_key=self.ordering_key,
            blocks=self.blocks,
        )

    def _state(self, now: datetime) -> Literal["ready", "leased", "scheduled", "behind", "dead"]:
        if self.died_at is not None:
            return "dead"
        if self.leased(now):
            return "leased"
        if self.due_at is not None:
            return "behind"
        return "scheduled" if self.available_at > now else "ready"


def counted(key: tuple[str, str], rows: list[Shown], now: datetime) -> KindStats:
    """The rows of one tenant and kind, by state."""
    states = [each.state for each in rows]
    ages = [(now - each.available_at).total_seconds() for each in rows if each.state == "ready" and each.available_at]
    return KindStats(
        *key,
        ready=states.count("ready"),
        leased=states.count("leased"),
        scheduled=states.count("scheduled"),
        dead=states.count("dead"),
        oldest=max(ages, default=None),
        behind=states.count("behind"),
    )
