"""The outbox as its users see it: the interface that every store implements, and the values that cross it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
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
    """What one claim took: rows under one lease, and how many it moved to the dead letters on the way."""

    lease_id: UUID
    rows: tuple[Row, ...] = ()
    buried: int = 0


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


@dataclass(frozen=True, slots=True)
class Snooze:
    """A row put off to ``until`` without spending its attempt."""

    id: int | UUID
    until: datetime


@dataclass(frozen=True, slots=True)
class Oldest:
    """Age in seconds of a tenant's oldest ready row, by the database's clock; None when none is ready."""

    seconds: float | None = None
    ready: int = field(default=0)


class OutboxStore(Protocol):
    """A store of rows to deliver. Every method is one bounded statement (or transaction) and safe to cancel.

    All of them raise ``psycopg.OperationalError`` or ``StoreUnavailable`` when the database cannot be reached and
    ``SchemaError`` when the schema is missing or older than the code; both are worth waiting for.
    """

    #: what a claim leases rows for when nobody says otherwise
    default_lease: timedelta

    async def claim(
        self, tenant_id: str, *, kinds: Sequence[str] | None, limit: int, lease: timedelta
    ) -> Claim:
        """Lease up to ``limit`` due rows of one tenant, oldest first; ``kinds`` None means every kind.

        Suspects (a lease that ran out) come alone. Rows beyond max_attempts go to the dead letters instead.
        """
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


class StoreUnavailable(Exception):
    """The database cannot be reached in the time allowed; the message carries no credential."""


class SchemaError(Exception):
    """The outbox schema is missing or of another version; the message names the command that mends it."""
