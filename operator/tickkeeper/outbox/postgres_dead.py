"""The dead letters in PostgreSQL."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import TupleRow

from tickkeeper.outbox.arguments import age_seconds, sorted_ids
from tickkeeper.outbox.calls import StatementTimedOut
from tickkeeper.outbox.store import DeadRow, Replayed

#: Rows of one transaction of a replay or a purge.
_BATCH = 500
_MAX_LISTED = 10_000

Query = Callable[[str, Mapping[str, Any]], Awaitable[list[TupleRow]]]
LookAfterKeys = Callable[[], Awaitable[None]]


class PostgresDeadLetters:
    """See ``DeadLetters``. ``query`` runs a named query with parameters; ``look_after_keys`` those that were noted."""

    def __init__(self, query: Query, look_after_keys: LookAfterKeys) -> None:
        self._query = query
        self._look_after_keys = look_after_keys

    async def latest(self, *, tenant_id: str | None = None, kind: str | None = None, limit: int = 50) -> list[DeadRow]:
        """Up to ``limit`` of them, latest death first."""
        if not 1 <= limit <= _MAX_LISTED:
            raise ValueError(f"limit is {limit}: must be 1 to {_MAX_LISTED}")
        records = await self._query("dead", {"tenant_id": tenant_id, "kind": kind, "limit": limit})
        return [DeadRow(*record) for record in records]

    async def replay(
        self, *, ids: Sequence[int | UUID] | None = None, tenant_id: str | None = None, kind: str | None = None
    ) -> Replayed:
        """Put back those that fit every filter given, oldest first, with their ids and all attempts, in batches."""
        ((due,),) = await self._query("database_time", {})
        chosen = {"ids": None if ids is None else sorted_ids(ids), "tenant_id": tenant_id, "kind": kind, "due": due}
        replayed, size = 0, _BATCH
        skipped: list[int] = []
        above: int | None = None
        while True:
            try:
                records = await self._query("replay", {**chosen, "above": above, "limit": size})
            except StatementTimedOut:
                if size == 1:
                    raise
                size //= 2
                continue
            if not records:
                await self._look_after_keys()
                return Replayed(replayed, tuple(sorted(skipped)))
            above = records[-1][0]
            replayed += sum(went for _, went in records)
            skipped += [row_id for row_id, went in records if not went]

    async def purge(
        self,
        *,
        older_than: timedelta,
        ids: Sequence[int | UUID] | None = None,
        tenant_id: str | None = None,
        kind: str | None = None,
    ) -> int:
        """Delete those that died that long ago and fit every filter given, in batches; returns how many."""
        age = age_seconds(older_than)
        chosen = {"ids": None if ids is None else sorted_ids(ids), "tenant_id": tenant_id, "kind": kind}
        purged, size = 0, _BATCH
        last: dict[str, Any] = {"last_death": None, "last_id": None}
        while True:
            try:
                records = await self._query("purge", {**chosen, **last, "age": age, "limit": size})
            except StatementTimedOut:
                if size == 1:
                    raise
                size //= 2
                continue
            if not records:
                await self._look_after_keys()
                return purged
            ((gone, death, row_id),) = records
            purged += gone
            last = {"last_death": death, "last_id": row_id}
