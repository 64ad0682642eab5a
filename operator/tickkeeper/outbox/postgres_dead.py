"""The dead letters in PostgreSQL."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.errors import LockNotAvailable
from psycopg.rows import TupleRow

from tickkeeper.outbox.arguments import age_seconds, sorted_ids
from tickkeeper.outbox.calls import StatementTimedOut
from tickkeeper.outbox.store import DeadRow, Replayed, StoreUnavailable

#: Rows of one transaction of a replay or a purge.
_BATCH = 500
_MAX_LISTED = 10_000
#: How long a portion of a replay, and a row by itself, waits for a producer's transaction: producers may wait for it
#: too, and PostgreSQL ends one of two that do as a deadlock after a second.
_PORTION_WAITS = "100ms"
_ROW_WAITS = "20ms"
#: Seconds between two attempts at the rows that wait, and for which none of them went.
_AGAIN_AFTER = 0.2
_IN_VAIN = 5.0
_TOLD = 20

Query = Callable[[str, Mapping[str, Any]], Awaitable[list[TupleRow]]]
LookAfterKeys = Callable[[], Awaitable[None]]


class ReplayIncomplete(StoreUnavailable):
    """Open transactions of producers kept the rows ``waiting`` from being replayed; ``done`` tells of the others."""

    def __init__(self, done: Replayed, waiting: Sequence[int]) -> None:
        self.done = done
        self.waiting = tuple(waiting)
        some = ", ".join(map(str, self.waiting[:_TOLD])) + (", …" if len(self.waiting) > _TOLD else "")
        super().__init__(
            f"replayed {done.replayed}; {len(self.waiting)} stay dead, since a producer's open transaction holds their "
            f"ordering_key or dedup_key, replay them again when it has ended: {some}"
        )


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
        """Put back those that fit every filter given, oldest first, with their ids and all attempts, in batches.

        Raises ReplayIncomplete where producers do not end the transactions that it waits for.
        """
        ((due,),) = await self._query("database_time", {})
        chosen = {"tenant_id": tenant_id, "kind": kind, "due": due}
        one_pass = _Pass(self._query, {**chosen, "ids": None if ids is None else sorted_ids(ids)})
        await one_pass.run(_BATCH)
        replayed, skipped, useful = one_pass.replayed, one_pass.skipped, time.monotonic()
        while (waiting := one_pass.waiting) and time.monotonic() - useful < _IN_VAIN:
            await asyncio.sleep(_AGAIN_AFTER)
            one_pass = _Pass(self._query, {**chosen, "ids": waiting})
            await one_pass.run(1)
            replayed += one_pass.replayed
            skipped += one_pass.skipped
            if len(one_pass.waiting) < len(waiting):
                useful = time.monotonic()
        await self._look_after_keys()
        done = Replayed(replayed, tuple(sorted(skipped)))
        if waiting:
            raise ReplayIncomplete(done, waiting)
        return done

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


class _Pass:
    """Once through the chosen rows, ascending. A row that waits for a producer makes the later ones of its key wait."""

    def __init__(self, query: Query, chosen: Mapping[str, Any]) -> None:
        self._query = query
        self._chosen = chosen
        self._held: dict[tuple[str, str], None] = {}
        self.replayed = 0
        self.skipped: list[int] = []
        self.waiting: list[int] = []

    async def run(self, size: int) -> None:
        """Replay what can be replayed now; ``size`` rows first, and more or fewer as it goes."""
        most = _BATCH
        above: int | None = None
        while True:
            try:
                records = await self._portion(above, size)
            except StatementTimedOut:
                if size == 1:
                    raise
                size = most = size // 2
                continue
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
                if size > 1:
                    size //= 2
                    continue
                records = await self._portion(above, size, hold=True)
            else:
                size = min(size * 2, most)
            if not records:
                return
            above = records[-1][0]
            self._note(records)

    def _note(self, records: list[TupleRow]) -> None:
        for row_id, went, waits, tenant_id, ordering_key in records:
            if went:
                self.replayed += 1
            elif not waits:
                self.skipped.append(row_id)
            else:
                self.waiting.append(row_id)
                if ordering_key is not None:
                    self._held[tenant_id, ordering_key] = None

    async def _portion(self, above: int | None, size: int, *, hold: bool = False) -> list[TupleRow]:
        given = {
            "above": above,
            "limit": size,
            "hold": hold,
            "patience": _PORTION_WAITS if size > 1 else _ROW_WAITS,
            "held_tenants": [tenant_id for tenant_id, _ in self._held],
            "held_keys": [key for _, key in self._held],
        }
        return await self._query("replay", {**self._chosen, **given})
