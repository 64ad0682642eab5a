"""An outbox in memory, for the tests of handlers."""

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal
from uuid import UUID, uuid4

from tickkeeper.outbox.arguments import (
    checked_limit,
    exact_kind,
    lease_seconds,
    paused_names,
    sorted_ids,
    unique_failures,
    unique_kinds,
    unique_snoozes,
)
from tickkeeper.outbox.backoff import Backoff
from tickkeeper.outbox.new_row import (
    DEFAULT_MAX_ATTEMPTS,
    MAX_PAYLOAD_BYTES,
    DuplicateRow,
    Enqueued,
    NewRow,
    OnDuplicate,
    parameters,
)
from tickkeeper.outbox.runs import MAX_RUN
from tickkeeper.outbox.store import (
    READY_COUNTED,
    Cancelled,
    Claim,
    Failure,
    KindStats,
    Oldest,
    Pause,
    Settled,
    Shown,
    Snooze,
)
from tickkeeper.testing.claims import Asked, Claims
from tickkeeper.testing.dead import InMemoryDeadLetters
from tickkeeper.testing.entry import Entry, Reason, counted
from tickkeeper.testing.keys import Keys
from tickkeeper.testing.transaction import InMemoryTransaction, locked

#: As the other outboxes have it: a row that is due again at once would be claimed again and again within one tick.
_MIN_SNOOZE = timedelta(seconds=1)


class InMemoryOutbox:
    """``ManagedOutbox`` without a server: the same rules and the same answers as PostgresOutbox, in one process.

    Its clock is the machine's, and ``advance`` moves it: leases run out and retries become due without waiting.
    """

    def __init__(
        self,
        *,
        default_lease: timedelta = timedelta(seconds=30),
        backoff: Backoff | None = None,
        max_batch_bytes: int = 32 * 1024 * 1024,
        dead_heads: Literal["skip", "block"] = "skip",
        connection: Any = None,
    ) -> None:
        """``dead_heads`` as of PostgresOutbox; ``connection`` is what handlers of a ``transaction`` are given.

        ValueError: the default lease is not allowed.
        """
        lease_seconds(default_lease)
        if dead_heads not in ("skip", "block"):
            raise ValueError(f"dead_heads is {dead_heads!r}: must be skip or block")
        self.default_lease = default_lease
        self._backoff = backoff or Backoff()
        self._block = dead_heads == "block"
        self._connection = connection
        self._ahead = timedelta()
        self._ids = count(1)
        self._live: dict[int, Entry] = {}
        self._dead: dict[int, Entry] = {}
        self._keys = Keys(self._live, self._dead)
        self._claims = Claims(self._live, self._keys, max_batch_bytes)
        self._pauses: dict[tuple[str, str], Pause] = {}
        self.dead_letters = InMemoryDeadLetters(self._live, self._dead, self._keys, self.now)

    @property
    def has_connection(self) -> bool:
        """Whether there is something to hand to handlers with ``transaction=True``."""
        return self._connection is not None

    def now(self) -> datetime:
        """This outbox's clock."""
        return datetime.now(UTC) + self._ahead

    def advance(self, by: timedelta) -> None:
        """Move the clock forward."""
        if by < timedelta():
            raise ValueError(f"by is {by}: must not be negative")
        self._ahead += by

    def enqueue(
        self,
        tenant_id: str,
        kind: str,
        payload: Any,
        *,
        headers: dict[str, str] | None = None,
        dedup_key: str | None = None,
        on_duplicate: OnDuplicate = "keep",
        available_at: datetime | None = None,
        delay: timedelta | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        ordering_key: str | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> Enqueued:
        """``tickkeeper.outbox.enqueue`` without a connection; raises InvalidRow and DuplicateRow as that does."""
        row = NewRow(
            tenant_id, kind, payload, headers, dedup_key, on_duplicate, available_at, delay, max_attempts, ordering_key
        )
        given = parameters(row, max_payload_bytes=max_payload_bytes)
        now = self.now()
        due = available_at or (None if delay is None else now + delay)
        held = next(
            (
                each
                for each in self._live.values()
                if dedup_key is not None and each.open and (each.tenant_id, each.dedup_key) == (tenant_id, dedup_key)
            ),
            None,
        )
        if held is None:
            behind = ordering_key is not None and self._keys.busy((tenant_id, ordering_key))
            entry = Entry(
                id=next(self._ids),
                tenant_id=tenant_id,
                kind=kind,
                payload=given["payload"],
                headers=given["headers"],
                dedup_key=dedup_key,
                max_attempts=max_attempts,
                available_at=due or now,
                created_at=now,
                ordering_key=ordering_key,
                due_at=due or now if behind else None,
            )
            self._live[entry.id] = entry
            return Enqueued(entry.id, "inserted")
        if on_duplicate == "error":
            raise DuplicateRow(
                f'dedup_key is "{dedup_key}": must be unique among the rows of tenant "{tenant_id}" that wait'
            )
        if on_duplicate == "keep":
            return Enqueued(held.id, "kept")
        if held.ordering_key != ordering_key:
            raise DuplicateRow(
                f"ordering_key is {ordering_key!r}: must be that of the row to replace, {held.ordering_key!r}"
            )
        held.kind, held.payload, held.headers, held.max_attempts = (
            kind,
            given["payload"],
            given["headers"],
            max_attempts,
        )
        held.put_off(due or min(held.due_at or held.available_at, now))
        return Enqueued(held.id, "replaced")

    async def claim(self, tenant_id: str, *, kinds: Sequence[str] | None, limit: int, lease: timedelta) -> Claim:
        """See ``OutboxStore``."""
        checked_limit(limit)
        length = timedelta(seconds=lease_seconds(lease))
        wanted = None if kinds is None else set(unique_kinds(kinds))
        lease_id, buried = uuid4(), 0

        def wants(kind: str) -> bool:
            return (wanted is None or kind in wanted) and not self._is_paused(tenant_id, kind)

        asked = Asked(tenant_id, limit, lease_id, length, self.now(), wants)
        due = self._claims.due(asked)
        while (due and due[0].attempts >= due[0].max_attempts) or (not due and self._keys.look_after(tenant_id)):
            if due:
                self._bury_lost(due[0], asked.now)
                buried += 1
            due = self._claims.due(asked)
        alone = bool(due) and due[0].alone
        taken = self._claims.take(due, asked)
        self._keys.look_after(tenant_id)
        size = sum(len(each.payload) for each in taken)
        return Claim(lease_id, tuple(each.as_row() for each in taken), buried, alone, size)

    async def kinds(self, tenant_id: str) -> tuple[str, ...]:
        """See ``OutboxStore``."""
        return tuple(sorted({each.kind for each in self._live.values() if each.tenant_id == tenant_id}))

    async def ack(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``."""
        wanted = sorted_ids(ids)
        mine = self._mine(lease_id, wanted)
        for entry in mine:
            self._remove(entry)
        return _settled(wanted, mine)

    async def fail(self, lease_id: UUID, failures: Sequence[Failure]) -> Settled:
        """See ``OutboxStore``."""
        given = {each.id: each for each in unique_failures(failures)}
        mine, now = self._mine(lease_id, given), self.now()
        self._hand_back_rest(lease_id, mine)
        dying = [each for each in mine if given[each.id].dead or each.attempts >= each.max_attempts]
        for entry in mine:
            if entry not in dying:
                wait = given[entry.id].after
                if wait is None:
                    wait = timedelta(seconds=self._backoff.seconds(entry.attempts, random.random()))  # noqa: S311 - jitter
                entry.put_off(now + wait)
                entry.lease_id = entry.lease_until = None
                entry.suspect, entry.error = False, given[entry.id].error
        for entry in dying:
            self._bury(entry, now, "rejected" if given[entry.id].dead else "exhausted", given[entry.id].error)
        return replace(_settled(given, mine), dead=len(dying))

    async def snooze(self, lease_id: UUID, snoozes: Sequence[Snooze]) -> Settled:
        """See ``OutboxStore``."""
        given = {each.id: each for each in unique_snoozes(snoozes)}
        mine = self._mine(lease_id, given)
        self._hand_back_rest(lease_id, mine)
        for entry in mine:
            entry.hand_back()
            entry.put_off(max(given[entry.id].until, self.now() + _MIN_SNOOZE))
            entry.suspect = False
        return _settled(given, mine)

    async def release(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``."""
        wanted = sorted_ids(ids)
        mine = self._mine(lease_id, wanted)
        self._hand_back_rest(lease_id, mine)
        for entry in mine:
            entry.hand_back()
        return _settled(wanted, mine)

    async def renew(self, lease_id: UUID, ids: Sequence[int | UUID], lease: timedelta) -> Settled:
        """See ``OutboxStore``."""
        until = self.now() + timedelta(seconds=lease_seconds(lease))
        wanted = sorted_ids(ids)
        mine = self._mine(lease_id, wanted)
        for entry in mine:
            entry.lease_until = until
        return _settled(wanted, mine)

    async def oldest(self, tenant_id: str) -> Oldest:
        """See ``OutboxStore``."""
        now = self.now()
        due = [each for each in self._live.values() if each.tenant_id == tenant_id and each.due(now)]
        ages = [(now - each.available_at).total_seconds() for each in due]
        return Oldest(max(ages, default=None), min(len(ages), READY_COUNTED))

    async def cancel(
        self, tenant_id: str, *, ids: Sequence[int | UUID] | None = None, dedup_key: str | None = None
    ) -> Cancelled:
        """See ``ManagedOutbox``."""
        if ids is None and dedup_key is None:
            raise ValueError("ids and dedup_key are both None: one of them must say what to cancel")
        wanted, now = None if ids is None else sorted_ids(ids), self.now()
        named = [
            each
            for each in self._live.values()
            if each.tenant_id == tenant_id
            and (wanted is None or each.id in wanted)
            and dedup_key in (None, each.dedup_key)
        ]
        waiting = [each for each in named if not each.leased(now)]
        for entry in waiting:
            self._remove(entry)
        held = [each.id for each in named if each not in waiting]
        return Cancelled.of(wanted, [each.id for each in waiting], held)

    @asynccontextmanager
    async def transaction(
        self, lease_id: UUID, ids: Sequence[int | UUID], *, whole: bool = False
    ) -> AsyncIterator[InMemoryTransaction]:
        """See ``TransactionalStore``."""
        wanted = sorted_ids(ids)
        mine = self._mine(lease_id, wanted)
        work = InMemoryTransaction(self._connection, wanted, [each.id for each in mine])
        async with locked(mine):
            yield work
        for entry in mine:
            if whole or entry.id in work.leaving:
                self._remove(entry)

    async def pause(self, *, tenant_id: str | None = None, kind: str | None = None) -> None:
        """See ``ManagedOutbox``."""
        self._pauses.setdefault(paused_names(tenant_id, exact_kind(kind)), Pause(tenant_id, kind, self.now()))

    async def resume(self, *, tenant_id: str | None = None, kind: str | None = None) -> bool:
        """See ``ManagedOutbox``."""
        return self._pauses.pop(paused_names(tenant_id, kind), None) is not None

    async def paused(self) -> list[Pause]:
        """See ``ManagedOutbox``."""
        return sorted(self._pauses.values(), key=lambda each: each.since)

    async def stats(self, tenant_id: str | None = None) -> list[KindStats]:
        """See ``ManagedOutbox``."""
        now = self.now()
        rows = [each.shown(now) for each in (*self._live.values(), *self._dead.values())]
        return [
            counted(key, [each for each in rows if (each.tenant_id, each.kind) == key], now)
            for key in sorted({(each.tenant_id, each.kind) for each in rows if tenant_id in (None, each.tenant_id)})
        ]

    async def show(self, row_id: int | UUID) -> Shown | None:
        """See ``ManagedOutbox``."""
        (wanted,) = sorted_ids([row_id])
        entry = self._live.get(wanted) or self._dead.get(wanted)
        return None if entry is None else entry.shown(self.now())

    async def close(self) -> None:
        """Nothing to give back; rows stay."""

    def _mine(self, lease_id: UUID, ids: Iterable[int | UUID]) -> list[Entry]:
        found = [self._live.get(each) for each in ids if isinstance(each, int)]
        return [each for each in found if each is not None and each.lease_id == lease_id]

    def _is_paused(self, tenant_id: str, kind: str) -> bool:
        return not {(tenant_id, kind), (tenant_id, ""), ("", kind)}.isdisjoint(self._pauses)

    def _hand_back_rest(self, lease_id: UUID, mine: list[Entry]) -> None:
        """The rows behind these in their runs go back as if never started."""
        given = {each.id for each in mine}
        rest = {row.id: row for each in mine for row in self._keys.behind(each, MAX_RUN) if row.lease_id == lease_id}
        for row in rest.values():
            if row.id not in given:
                row.hand_back()

    def _remove(self, entry: Entry) -> None:
        del self._live[entry.id]
        self._keys.gone(entry)

    def _bury_lost(self, entry: Entry, now: datetime) -> None:
        told = (
            f"attempt {entry.attempts} of {entry.max_attempts} gave no answer: "
            "its worker died, or was slower than its lease"
        )
        self._bury(entry, now, "lost", f"{told}; before that: {entry.error}" if entry.error else told)

    def _bury(self, entry: Entry, now: datetime, reason: Reason, error: str) -> None:
        del self._live[entry.id]
        entry.reason, entry.error, entry.died_at = reason, error, now
        entry.blocks = self._block and entry.ordering_key is not None
        self._dead[entry.id] = entry
        self._keys.gone(entry)


def _settled(wanted: Iterable[int | UUID], mine: list[Entry]) -> Settled:
    asked, ours = list(wanted), {each.id for each in mine}
    return Settled(len(mine), len(asked) - len(mine), lost=tuple(each for each in asked if each not in ours))
