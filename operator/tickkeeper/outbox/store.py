"""The outbox as its users see it: the interface that every store implements, and the values that cross it."""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from tickkeeper.outbox.values import Cancelled, DeadRow, KindStats, Pause, Replayed, Shown

if TYPE_CHECKING:
    from psycopg import AsyncConnection

__all__ = [
    "READY_COUNTED",
    "Cancelled",
    "Claim",
    "DeadLetters",
    "DeadRow",
    "Failure",
    "KindStats",
    "ManagedOutbox",
    "Oldest",
    "OutboxStore",
    "Pause",
    "Replayed",
    "Row",
    "RowTransaction",
    "SchemaError",
    "Settled",
    "Shown",
    "Snooze",
    "StoreUnavailable",
    "TransactionalStore",
]


@dataclass(slots=True)  # not frozen: that would take longer than all else that is done with a row here
class Row:
    """One claimed row, to be read only. ``attempts`` counts this one; times are the database's.

    ``ordering_key``: rows of one tenant and key are to be handled one after another, see ``Claim``.
    """

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

    Rows with an ordering_key come as runs: of each key the first rows that wait, in the order of their ids, directly
    behind one another. Nobody else is given rows of that key until the run is settled or its lease is over, so whoever
    holds it handles it one row after another, in this order, and

    - goes on to the next row only after the one before was handled; it need not be acked yet, and acks of a run may be
      written together;
    - stops at the first row that ends otherwise (a failure, dead, snooze, release): that write hands the rest of the
      run back as if never started, in the same transaction, and the rest needs no write of its own;
    - stops as well where a write names a row of the run in ``Settled.lost``: the rest is lost with it.
    """

    lease_id: UUID
    rows: tuple[Row, ...] = ()
    buried: int = 0
    #: True where the one row may kill its worker (a suspect) or is on its last attempt: whatever else runs in the same
    #: process while it is handled would share its fate.
    alone: bool = False
    #: length of the payloads as text, in characters
    size: int = 0


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
    #: which rows were fenced
    lost: tuple[int | UUID, ...] = field(default=(), compare=False)

    def __add__(self, other: "Settled") -> "Settled":
        return Settled(
            self.changed + other.changed,
            self.fenced + other.fenced,
            self.dead + other.dead,
            self.lost + other.lost,
        )


@dataclass(frozen=True, slots=True)
class Snooze:
    """A row put off to ``until`` without spending its attempt."""

    id: int | UUID
    until: datetime


@dataclass(frozen=True, slots=True)
class Oldest:
    """Seconds since a tenant's oldest ready row became due, by the database's clock; None when none is ready.

    Of rows with one ordering_key only the first can be ready: those behind it are not counted.
    """

    seconds: float | None = None
    #: counted up to READY_COUNTED: that many means "at least"
    ready: int = field(default=0)


#: How far ``Oldest.ready`` counts: it is asked after every tick, so it must stay cheap in front of a backlog.
READY_COUNTED = 1_000


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
        to the dead letters instead. Rows of a kind or tenant that is paused are left. An ordering_key takes its turn by
        the due time of its first row, among the rows without one; how many rows of it come is the store's choice.
        """
        ...

    async def kinds(self, tenant_id: str) -> Collection[str]:
        """The kinds that a tenant has rows of, due or not: what a pattern of kinds is resolved against."""
        ...

    async def ack(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """Rows were handled: they leave the outbox."""
        ...

    async def fail(self, lease_id: UUID, failures: Sequence[Failure]) -> Settled:
        """Rows go back for a later try, or to the dead letters when that was their last.

        The rows behind one of them in its run (see ``Claim``) go back too. Until it is due again its ordering_key
        waits; a dead row is skipped, unless the store was told that it blocks its key.
        """
        ...

    async def snooze(self, lease_id: UUID, snoozes: Sequence[Snooze]) -> Settled:
        """Rows go back until a given time, at least for a second by the store's clock; the attempt is not counted."""
        ...

    async def release(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """Rows were never started: they go back at once, and the attempt is not counted."""
        ...

    async def renew(self, lease_id: UUID, ids: Sequence[int | UUID], lease: timedelta) -> Settled:
        """Hold rows longer, from now. Rows in a transaction of ``TransactionalStore`` need none, and count as held."""
        ...

    async def oldest(self, tenant_id: str) -> Oldest:
        """How far behind a tenant is."""
        ...

    async def close(self) -> None:
        """Give the connections back; safe to call twice."""
        ...


class RowTransaction(Protocol):
    """One transaction on the store's database, in which rows leave the outbox together with their handlers' effects."""

    @property
    def connection(self) -> "AsyncConnection[Any]":
        """For the handlers' own statements, in READ COMMITTED. Commit and rollback are not theirs: they raise."""
        ...

    @property
    def held(self) -> frozenset[int | UUID]:
        """The rows that are ours: locked until the end, so that nobody claims them however long it takes."""
        ...

    @property
    def fenced(self) -> frozenset[int | UUID]:
        """The rows asked for that are no longer ours. They must not be handled."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Around one handler: what it did is undone where it raises, and the transaction goes on.

        Raises what the handler raised; StoreUnavailable where the connection is lost, and with it the transaction.
        """
        ...

    async def abandon(self) -> None:
        """Nothing of it is committed: a handler was told to stop, and may still use the connection."""
        ...

    def done(self, *ids: int | UUID) -> None:
        """These rows were handled: they leave the outbox when the transaction commits. ValueError: not held."""
        ...


class TransactionalStore(OutboxStore, Protocol):
    """A store whose rows can leave in the transaction of their handlers' effects: exactly once, on its database."""

    def transaction(
        self, lease_id: UUID, ids: Sequence[int | UUID], *, whole: bool = False
    ) -> AbstractAsyncContextManager[RowTransaction]:
        """A transaction over claimed rows. It begins by locking those that are still ours under the lease.

        ``whole``: all that are held are done, unless it is left with an error. That is quicker, and for rows without an
        ordering_key.

        Left without an error, the rows that were ``done`` leave and all commits at once. Left with one, nothing has
        happened. The other rows stay leased, to be settled by ``fail`` and its like afterwards.

        Single rows, one transaction for many (for each: handle, then done)::

            async with store.transaction(claim.lease_id, ids) as work:
                for row in rows:                       # skip those in work.fenced
                    try:
                        async with work.savepoint():
                            await handler(row, work.connection)
                    except StoreUnavailable:
                        raise                          # the connection is gone, and the transaction with it
                    except Exception as error:
                        ...                            # a failure, to be written after the transaction
                    else:
                        work.done(row.id)

        A batch handler is called once without a savepoint, and succeeds or fails whole. Where the transaction itself
        fails (StoreUnavailable, or an error of its commit such as a deferred constraint), redo the rows one by one, a
        transaction each: what had been committed after all is fenced then.

        It takes a connection of its own, of ``transaction_connections``: waiting for one raises StoreUnavailable as
        usual. There is no bound on its length but the caller's; cancelling rolls it back.
        """
        ...


class DeadLetters(Protocol):
    """The rows that were given up. Raises as the store does."""

    async def latest(self, *, tenant_id: str | None = None, kind: str | None = None, limit: int = 50) -> list[DeadRow]:
        """Up to ``limit`` of them, latest death first."""
        ...

    async def replay(
        self, *, ids: Sequence[int | UUID] | None = None, tenant_id: str | None = None, kind: str | None = None
    ) -> Replayed:
        """Put back those that fit every filter given, with their own ids and all their attempts, in batches.

        One with an ordering_key goes before the rows that wait in its key.
        """
        ...

    async def purge(
        self,
        *,
        older_than: timedelta,
        ids: Sequence[int | UUID] | None = None,
        tenant_id: str | None = None,
        kind: str | None = None,
    ) -> int:
        """Delete those that died that long ago and fit every filter given, in batches; returns how many.

        A key that one of them blocked goes on.
        """
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

    async def pause(self, *, tenant_id: str | None = None, kind: str | None = None) -> None:
        """Claim no more rows of a tenant, of a kind (of all tenants), or of that kind of that tenant.

        Producers go on, and rows that are with a worker are finished. Pausing twice is pausing once. An ordering_key
        waits where its first row is of what is paused. ValueError: neither is given, or one is no name, or
        the kind is a pattern.
        """
        ...

    async def resume(self, *, tenant_id: str | None = None, kind: str | None = None) -> bool:
        """End exactly the pause that ``pause`` with these arguments made; False where there is none."""
        ...

    async def paused(self) -> list[Pause]:
        """All pauses, oldest first."""
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
