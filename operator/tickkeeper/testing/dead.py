"""The dead letters of the in-memory outbox."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tickkeeper.outbox.arguments import age_seconds, sorted_ids
from tickkeeper.outbox.store import DeadRow, Replayed
from tickkeeper.testing.entry import Entry
from tickkeeper.testing.keys import Keys


class InMemoryDeadLetters:
    """See ``DeadLetters``."""

    def __init__(self, live: dict[int, Entry], dead: dict[int, Entry], keys: Keys, now: Callable[[], datetime]) -> None:
        self._live = live
        self._dead = dead
        self._keys = keys
        self._now = now

    async def latest(self, *, tenant_id: str | None = None, kind: str | None = None, limit: int = 50) -> list[DeadRow]:
        """Up to ``limit`` of them, latest death first."""
        if limit < 1:
            raise ValueError(f"limit is {limit}: must be at least 1")
        rows = [each.as_dead() for each in self._chosen(None, tenant_id, kind)]
        return sorted(rows, key=lambda row: (row.died_at, row.id), reverse=True)[:limit]

    async def replay(
        self, *, ids: Sequence[int | UUID] | None = None, tenant_id: str | None = None, kind: str | None = None
    ) -> Replayed:
        """Put back those that fit every filter given, with their own ids and all their attempts."""
        due, replayed, skipped = self._now(), 0, []
        for entry in sorted(self._chosen(ids, tenant_id, kind), key=lambda each: -each.id):
            twins = self._twins(entry)
            if any(not entry.blocks or each.ordering_key != entry.ordering_key for each in twins):
                skipped.append(entry.id)
                continue
            del self._dead[entry.id]
            # A twin that waits behind the row it blocks keeps the dedup_key.
            entry.attempts, entry.available_at, entry.open = 0, due, not twins
            entry.reason = entry.died_at = entry.lease_id = entry.lease_until = None
            entry.suspect = entry.blocks = False
            entry.due_at = None if entry.ordering_key is None else due
            self._live[entry.id] = entry
            self._keys.note(entry)
            replayed += 1
        self._keys.look_after()
        return Replayed(replayed, tuple(sorted(skipped)))

    async def purge(
        self,
        *,
        older_than: timedelta,
        ids: Sequence[int | UUID] | None = None,
        tenant_id: str | None = None,
        kind: str | None = None,
    ) -> int:
        """Delete those that died that long ago and fit every filter given; returns how many."""
        latest = self._now() - timedelta(seconds=age_seconds(older_than))
        gone = [
            each for each in self._chosen(ids, tenant_id, kind) if each.died_at is not None and each.died_at <= latest
        ]
        for entry in gone:
            del self._dead[entry.id]
            if entry.blocks:
                self._keys.note(entry)
        self._keys.look_after()
        return len(gone)

    def _chosen(self, ids: Sequence[int | UUID] | None, tenant_id: str | None, kind: str | None) -> list[Entry]:
        wanted = None if ids is None else set(sorted_ids(ids))
        return [
            each
            for each in self._dead.values()
            if (wanted is None or each.id in wanted)
            and tenant_id in (None, each.tenant_id)
            and kind in (None, each.kind)
        ]

    def _twins(self, entry: Entry) -> list[Entry]:
        return [
            each
            for each in self._live.values()
            if entry.dedup_key is not None and (each.tenant_id, each.dedup_key) == (entry.tenant_id, entry.dedup_key)
        ]
