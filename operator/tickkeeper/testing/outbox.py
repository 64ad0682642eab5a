"""An outbox in memory, for the tests of handlers."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from tickkeeper.outbox.arguments import (
    checked_limit,
    lease_seconds,
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
from tickkeeper.outbox.store import (
    READY_COUNTED,
    Cancelled,
    Claim,
    Failure,
    KindStats,
    Oldest,
    Settled,
    Shown,
    Snooze,
)
from tickkeeper.testing.dead import InMemoryDeadLetters
from tickkeeper.testing.entry import Entry, Reason


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
    ) -> None:
        """ValueError: the default lease is not allowed."""
        lease_seconds(default_lease)
        self.default_lease = default_lease
        self._backoff = backoff or Backoff()
        self._max_bytes = max_batch_bytes
        self._ahead = timedelta()
        self._ids = count(1)
        self._live: dict[int, Entry] = {}
        self._dead: dict[int, Entry] = {}
        self.dead_letters = InMemoryDeadLetters(self._live, self._dead, self.now)

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
            )
            self._live[entry.id] = entry
            return Enqueued(entry.id, "inserted")
        if on_duplicate == "error":
            raise DuplicateRow(
                f'dedup_key is "{dedup_key}": must be unique among the rows of tenant "{tenant_id}" that wait'
            )
        if on_duplicate == "keep":
            return Enqueued(held.id, "kept")
        held.kind, held.payload, held.headers, held.max_attempts = (
            kind,
            given["payload"],
            given["headers"],
            max_attempts,
        )
        held.available_at = due or min(held.available_at, now)
        return Enqueued(held.id, "replaced")

    async def claim(self, tenant_id: str, *, kinds: Sequence[str] | None, limit: int, lease: timedelta) -> Claim:
        """See ``OutboxStore``."""
        checked_limit(limit)
        length = timedelta(seconds=lease_seconds(lease))
        wanted = None if kinds is None else set(unique_kinds(kinds))
        now, lease_id, buried = self.now(), uuid4(), 0
        due = sorted(self._due(tenant_id, now, wanted), key=lambda each: (each.available_at, each.id))
        while due and due[0].attempts >= due[0].max_attempts:
            self._bury_lost(due.pop(0), now)
            buried += 1
        alone = bool(due) and due[0].alone
        taken = due[:1] if alone else self._batch(due, limit)
        for entry in taken:
            entry.attempts += 1
            entry.suspect = entry.suspect or entry.lease_id is not None
            entry.lease_id, entry.lease_until, entry.open = lease_id, now + length, False
        return Claim(lease_id, tuple(each.as_row() for each in taken), buried, alone)

    async def kinds(self, tenant_id: str) -> tuple[str, ...]:
        """See ``OutboxStore``."""
        return tuple(sorted({each.kind for each in self._live.values() if each.tenant_id == tenant_id}))

    async def ack(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``."""
        wanted = sorted_ids(ids)
        mine = self._mine(lease_id, wanted)
        for entry in mine:
            del self._live[entry.id]
        return _settled(wanted, mine)

    async def fail(self, lease_id: UUID, failures: Sequence[Failure]) -> Settled:
        """See ``OutboxStore``."""
        given = {each.id: each for each in unique_failures(failures)}
        mine, now, dead = self._mine(lease_id, given), self.now(), 0
        for entry in mine:
            failure = given[entry.id]
            if failure.dead or entry.attempts >= entry.max_attempts:
                self._bury(entry, now, "rejected" if failure.dead else "exhausted", failure.error)
                dead += 1
                continue
            wait = failure.after
            if wait is None:
                wait = timedelta(seconds=self._backoff.seconds(entry.attempts, random.random()))  # noqa: S311 - jitter
            entry.available_at = now + wait
            entry.lease_id = entry.lease_until = None
            entry.suspect, entry.error = False, failure.error
        return replace(_settled(given, mine), dead=dead)

    async def snooze(self, lease_id: UUID, snoozes: Sequence[Snooze]) -> Settled:
        """See ``OutboxStore``."""
        given = {each.id: each for each in unique_snoozes(snoozes)}
        mine = self._mine(lease_id, given)
        for entry in mine:
            entry.hand_back()
            entry.available_at, entry.suspect = given[entry.id].until, False
        return _settled(given, mine)

    async def release(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``."""
        wanted = sorted_ids(ids)
        mine = self._mine(lease_id, wanted)
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
        ages = [(now - each.available_at).total_seconds() for each in self._due(tenant_id, now)]
        return Oldest(max(ages, default=None), min(len(ages), READY_COUNTED))

    async def cancel(
        self, tenant_id: str, *, ids: Sequence[int | UUID] | None = None, dedup_key: str | None = None
    ) -> Cancelled:
        """See ``ManagedOutbox``."""
        if ids is None and dedup_key is None:
            raise ValueError("ids and dedup_key are both None: one of them must say what to cancel")
        wanted, now = None if ids is None else set(sorted_ids(ids)), self.now()
        named = [
            each
            for each in self._live.values()
            if each.tenant_id == tenant_id
            and (wanted is None or each.id in wanted)
            and dedup_key in (None, each.dedup_key)
        ]
        waiting = [each for each in named if not each.leased(now)]
        for entry in waiting:
            del self._live[entry.id]
        return Cancelled(len(waiting), len(named) - len(waiting))

    async def stats(self, tenant_id: str | None = None) -> list[KindStats]:
        """See ``ManagedOutbox``."""
        now = self.now()
        rows = [each.shown(now) for each in (*self._live.values(), *self._dead.values())]
        return [
            _stats(key, [each for each in rows if (each.tenant_id, each.kind) == key], now)
            for key in sorted({(each.tenant_id, each.kind) for each in rows if tenant_id in (None, each.tenant_id)})
        ]

    async def show(self, row_id: int | UUID) -> Shown | None:
        """See ``ManagedOutbox``."""
        (wanted,) = sorted_ids([row_id])
        entry = self._live.get(wanted) or self._dead.get(wanted)
        return None if entry is None else entry.shown(self.now())

    async def close(self) -> None:
        """Nothing to give back; rows stay."""

    def _due(self, tenant_id: str, now: datetime, kinds: set[str] | None = None) -> list[Entry]:
        return [
            each
            for each in self._live.values()
            if each.tenant_id == tenant_id and each.due(now) and (kinds is None or each.kind in kinds)
        ]

    def _batch(self, due: list[Entry], limit: int) -> list[Entry]:
        taken: list[Entry] = []
        size = 0
        for entry in [each for each in due if not each.alone][:limit]:
            if size >= self._max_bytes:
                break
            taken.append(entry)
            size += len(entry.payload.encode())
        return taken

    def _mine(self, lease_id: UUID, ids: Iterable[int | UUID]) -> list[Entry]:
        found = [self._live.get(each) for each in ids if isinstance(each, int)]
        return [each for each in found if each is not None and each.lease_id == lease_id]

    def _bury_lost(self, entry: Entry, now: datetime) -> None:
        told = (
            f"attempt {entry.attempts} of {entry.max_attempts} gave no answer: "
            "its worker died, or was slower than its lease"
        )
        self._bury(entry, now, "lost", f"{told}; before that: {entry.error}" if entry.error else told)

    def _bury(self, entry: Entry, now: datetime, reason: Reason, error: str) -> None:
        del self._live[entry.id]
        entry.reason, entry.error, entry.died_at = reason, error, now
        self._dead[entry.id] = entry


def _settled(wanted: Iterable[int | UUID], mine: list[Entry]) -> Settled:
    return Settled(len(mine), len(list(wanted)) - len(mine))


def _stats(key: tuple[str, str], rows: list[Shown], now: datetime) -> KindStats:
    states = [each.state for each in rows]
    ages = [(now - each.available_at).total_seconds() for each in rows if each.state == "ready" and each.available_at]
    return KindStats(
        *key,
        ready=states.count("ready"),
        leased=states.count("leased"),
        scheduled=states.count("scheduled"),
        dead=states.count("dead"),
        oldest=max(ages, default=None),
    )
