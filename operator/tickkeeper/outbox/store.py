"""The outbox as its users see it: the interface that every store implements, and the values that cross it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Row:
    """One claimed row. ``attempts`` counts this one; times are the database's."""

    id: int | UUID
    tenant_id: str
    kind: str
    payload: Any
    headers: dict[str, str]
    attempts: int
    max_attempts: int
    available_at: datetime
    created_at: datetime
    #: True where an earlier lease ran out: its handler may have killed its worker, so it was claimed alone.
    suspect: bool = False
    dedup_key: str | None = None
    ordering_key: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """What one claim took: rows under one lease, and how many it moved to the dead letters on the way.

    No rows and nothing buried means that nothing is due.
    """

    lease_id: UUID
    rows: tuple[Row, ...] = ()
    buried: int = 0
    #: True where the one row may kill its worker (a suspect) or is on its last attempt: whatever else runs in the same
    #: process while it is handled would share its fate.
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that goes back: ``error`` says why; ``after`` overrides the back-off; ``dead`` ends it at once."""

    id: int | UUID
    error: str
    after: timedelta | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """What a write under a lease changed. ``fenced`` rows were no longer ours: never success."""

    changed: int
    fenced: int = 0
    #: of ``changed``, how many went to the dead letters
    dead: int = 0

    def __add__(self, other: "Settled") -> "Settled":
        return Settled(self.changed + other.changed, self.fenced + other.fenced, self.dead + other.dead)


@dataclass(frozen=True, slots=True)
class Snooze:
    """A row put off to ``until`` without spending its attempt."""

    id: int | UUID
    until: datetime


@dataclass(frozen=True, slots=True)
class Oldest:
    """Seconds since a tenant's oldest ready row became due, by the database's clock; None when none is ready."""

    seconds: float | None = None
    #: counted up to READY_COUNTED: that many means "at least"
    ready: int = field(default=0)


#: How far ``Oldest.ready`` counts: it is asked after every tick, so it must stay cheap in front of a backlog.
READY_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancellation did: ``held`` rows are with a worker and stay; the others named were not there any more."""

    cancelled: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class KindStats:
    """Rows of one tenant and kind, by state; ``oldest`` in seconds since the oldest ready one became due."""

    tenant_id: str
    kind: str
    ready: int = 0
    leased: int = 0
    scheduled: int = 0
    dead: int = 0
    oldest: float | None = None


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


@dataclass(frozen=True, slots=True)
class Shown:
    """One row, living or dead, with all there is to see of it. Times are the database's."""

    id: int | UUID
    tenant_id: str
    kind: str
    state: Literal["ready", "leased", "scheduled", "dead"]
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


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did. ``skipped`` stay dead: their dedup_key has a row in the outbox."""

    replayed: int
    skipped: tuple[int | UUID, ...] = ()


class OutboxStore(Protocol):
    """A store of rows to deliver. Every method is one bounded statement (or transaction) and safe to cancel.

    Cancelling one does not undo it: it ends in the background, and rows that a cancelled claim took are handed back.

    All of them raise ``StoreUnavailable`` when the database cannot be reached or does not answer in time, and
    ``SchemaError`` when the schema is missing or of another version than the code; both are worth waiting for. After
    StoreUnavailable a write may have happened or not: asked again, what had happened counts as fenced.
    ValueError: an argument that no state of the database could mend.
    """

    #: what a claim leases rows for when nobody says otherwise
    default_lease: timedelta

    async def claim(self, tenant_id: str, *, kinds: Sequence[str] | None, limit: int, lease: timedelta) -> Claim:
        """Lease up to ``limit`` due rows of one tenant, oldest first; ``kinds`` None means every kind.

        Suspects (a lease that ran out) and rows on their last attempt come alone. Rows whose attempts are used up go
        to the dead letters instead.
        """
        ...

    async def kinds(self, tenant_id: str) -> Collection[str]:
        """The kinds that a tenant has rows of, due or not: what a pattern of kinds is resolved against."""
        ...

    async def ack(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """Rows were handled: they leave the outbox."""
        ...

    async def fail(self, lease_id: UUID, failures: Sequence[Failure]) -> Settled:
        """Rows go back for a later try, or to the dead letters when that was their last."""
        ...

    async def snooze(self, lease_id: UUID, snoozes: Sequence[Snooze]) -> Settled:
        """Rows go back until a given time; the attempt is not counted."""
        ...

    async def release(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """Rows were never started: they go back at once, and the attempt is not counted."""
        ...

    async def renew(self, lease_id: UUID, ids: Sequence[int | UUID], lease: timedelta) -> Settled:
        """Hold rows longer, from now."""
        ...

    async def oldest(self, tenant_id: str) -> Oldest:
        """How far behind a tenant is."""
        ...

    async def close(self) -> None:
        """Give the connections back; safe to call twice."""
        ...


class DeadLetters(Protocol):
    """The rows that were given up. Raises as the store does."""

    async def latest(self, *, tenant_id: str | None = None, kind: str | None = None, limit: int = 50) -> list[DeadRow]:
        """Up to ``limit`` of them, latest death first."""
        ...

    async def replay(
        self, *, ids: Sequence[int | UUID] | None = None, tenant_id: str | None = None, kind: str | None = None
    ) -> Replayed:
        """Put back those that fit every filter given, with their own ids and all their attempts, in batches."""
        ...

    async def purge(
        self,
        *,
        older_than: timedelta,
        ids: Sequence[int | UUID] | None = None,
        tenant_id: str | None = None,
        kind: str | None = None,
    ) -> int:
        """Delete those that died that long ago and fit every filter given, in batches; returns how many."""
        ...


class ManagedOutbox(OutboxStore, Protocol):
    """A store that can also be looked into and mended by people."""

    @property
    def dead_letters(self) -> DeadLetters:
        """Its dead letters."""
        ...

    async def cancel(
        self, tenant_id: str, *, ids: Sequence[int | UUID] | None = None, dedup_key: str | None = None
    ) -> Cancelled:
        """Take rows of a tenant that wait out of the outbox, undelivered; by ids or by dedup_key."""
        ...

    async def stats(self, tenant_id: str | None = None) -> list[KindStats]:
        """Rows by tenant, kind and state, of one tenant or of all. Reads the whole table."""
        ...

    async def show(self, row_id: int | UUID) -> Shown | None:
        """One row, living or dead; None when there is none."""
        ...


class StoreUnavailable(Exception):
    """The database cannot be reached in the time allowed; the message carries no credential."""


class SchemaError(Exception):
    """The outbox schema is missing or of another version; the message names the command that mends it."""
