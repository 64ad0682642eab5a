"""What people see of an outbox and do to it: the values of ``ManagedOutbox`` and ``DeadLetters``."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancellation did: ``held`` rows are with a worker and stay; the others named were not there any more.

    ``held_ids`` are theirs; ``absent_ids`` those of the ids given that no row of the tenant has.
    """

    cancelled: int
    held: int = 0
    held_ids: tuple[int | UUID, ...] = field(default=(), compare=False)
    absent_ids: tuple[int | UUID, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls, asked: Sequence[int | UUID] | None, gone: Sequence[int | UUID], held: Sequence[int | UUID]
    ) -> "Cancelled":
        """From the ids asked for, None where it was not by ids, and what became of them."""
        absent = set(asked or ()) - {*gone, *held}
        return cls(len(gone), len(held), tuple(sorted(held)), tuple(sorted(absent)))


@dataclass(frozen=True, slots=True)
class KindStats:
    """Rows of one tenant and kind, by state; ``oldest`` in seconds since the oldest ready one became due.

    ``behind``: not leased, and waiting for an earlier row of their ordering_key, whatever their own due time. Of a key
    only the first row is ready, leased or scheduled by itself.
    """

    tenant_id: str
    kind: str
    ready: int = 0
    leased: int = 0
    scheduled: int = 0
    dead: int = 0
    oldest: float | None = None
    behind: int = 0


@dataclass(frozen=True, slots=True)
class DeadRow:
    """One dead letter, without its payload. ``reason``: its last attempt failed (exhausted) or gave no answer (lost),
    or its handler gave it up (rejected)."""

    id: int | UUID
    tenant_id: str
    kind: str
    attempts: int
    max_attempts: int
    reason: Literal["exhausted", "rejected", "lost"]
    error: str | None
    created_at: datetime
    died_at: datetime
    dedup_key: str | None = None
    ordering_key: str | None = None
    #: the rows behind it in its ordering_key wait until it is replayed or purged
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """One row, living or dead, with all there is to see of it. Times are the database's.

    ``behind``: not leased, and waiting for an earlier row of its ordering_key; ``available_at`` is its own due time.
    """

    id: int | UUID
    tenant_id: str
    kind: str
    state: Literal["ready", "leased", "scheduled", "behind", "dead"]
    payload: Any
    headers: dict[str, str]
    attempts: int
    max_attempts: int
    created_at: datetime
    available_at: datetime | None = None
    lease_until: datetime | None = None
    died_at: datetime | None = None
    suspect: bool = False
    dedup_key: str | None = None
    error: str | None = None
    reason: Literal["exhausted", "rejected", "lost"] | None = None
    ordering_key: str | None = None
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did. ``skipped`` stay dead: their dedup_key has a row in the outbox."""

    replayed: int
    skipped: tuple[int | UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """What is not claimed: a tenant (``kind`` None), a kind of all tenants (``tenant_id`` None), or both together."""

    tenant_id: str | None
    kind: str | None
    since: datetime
