"""The outbox in PostgreSQL."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

from psycopg.rows import TupleRow

from tickkeeper.outbox.arguments import (
    MAX_LIMIT,
    checked_limit,
    lease_seconds,
    sorted_ids,
    unique_failures,
    unique_kinds,
    unique_snoozes,
)
from tickkeeper.outbox.backoff import Backoff
from tickkeeper.outbox.calls import Calls, StatementTimedOut
from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.pool import StoreConnection
from tickkeeper.outbox.postgres_dead import PostgresDeadLetters
from tickkeeper.outbox.queries import DEFAULT_SCHEMA, queries
from tickkeeper.outbox.store import (
    READY_COUNTED,
    Cancelled,
    Claim,
    Failure,
    KindStats,
    Oldest,
    Row,
    SchemaError,
    Settled,
    Shown,
    Snooze,
)
from tickkeeper.outbox.version import misfit

T = TypeVar("T")

DEFAULT_LEASE = timedelta(seconds=30)
#: Payload bytes (as text) of one claim, beyond its first row.
MAX_BATCH_BYTES = 32 * 1024 * 1024
#: Rows that one claim buries before it returns without rows.
_MAX_BURIED = 100
#: Rows to look at (limit times kinds) from which on PostgreSQL's estimate of a claim nears jit_above_cost.
_JIT_THRESHOLD = 10_000
#: How often a claim looks again where a peer held what it was looking for.
_MAX_LOOKS = 4


class PostgresOutbox:
    """``ManagedOutbox`` in a PostgreSQL database; ``migrate`` makes its tables.

    Used as an async context manager, or by ``open`` and ``close``. It connects in the background, and again after every
    outage: calls meanwhile raise StoreUnavailable, within ``pool_timeout`` where nothing answers and ``call_timeout``
    plus 2 s where something hangs (seconds).
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        default_lease: timedelta = DEFAULT_LEASE,
        backoff: Backoff | None = None,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        min_connections: int = 1,
        max_connections: int = 4,
        connect_timeout: int = 5,
        pool_timeout: float = 5.0,
        call_timeout: float = 15.0,
    ) -> None:
        """ValueError: the dsn cannot be read, the schema's name or the default lease is not allowed."""
        lease_seconds(default_lease)
        self.default_lease = default_lease
        self._backoff = backoff or Backoff()
        self._max_bytes = max_batch_bytes
        self._schema = schema
        self._queries = queries(schema)
        self._calls = Calls(
            Dsn(dsn),
            schema=schema,
            min_size=min_connections,
            max_size=max_connections,
            pool_timeout=pool_timeout,
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
        )
        self._fits = False
        #: Halved when the server's statement_timeout ends a claim, and grown back by those that pass.
        self._ceiling = MAX_LIMIT
        self.dead_letters = PostgresDeadLetters(self._query)

    async def open(self) -> Self:
        """Start connecting; does not wait for it, and does not fail when the database is away."""
        await self._calls.open()
        return self

    async def close(self) -> None:
        """Let calls under way end, bounded, then give the connections back; safe to call twice."""
        await self._calls.close()

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def check_schema(self) -> None:
        """Raise SchemaError unless the schema is there and fits this code. Every other call does so when it must."""
        self._fits = False
        records = await self._calls.run(self._work("schema_version", None))
        version, compatible_with = records[0] if records else (0, None)
        if complaint := misfit(self._schema, version, compatible_with):
            raise SchemaError(complaint)
        self._fits = True

    async def claim(self, tenant_id: str, *, kinds: Sequence[str] | None, limit: int, lease: timedelta) -> Claim:
        """See ``OutboxStore``. A batch is also bounded by the bytes of its payloads."""
        limit, seconds = checked_limit(limit), lease_seconds(lease)
        # Resolved beforehand: within the claim the planner takes them for a hundred.
        wanted = list(await self.kinds(tenant_id)) if kinds is None else unique_kinds(kinds)
        chosen = {"tenant_id": tenant_id, "kinds": wanted, "lease": seconds, "max_bytes": self._max_bytes}
        claim = Claim(uuid4())
        looks, buried = 0, 0
        while wanted and buried < _MAX_BURIED:
            size = min(limit, self._ceiling)
            try:
                claim = await self._claim(chosen, size)
            except StatementTimedOut:
                if size == 1:
                    raise
                self._ceiling = size // 2
                continue
            buried += claim.buried
            if claim.rows:
                self._ceiling = min(MAX_LIMIT, self._ceiling + self._ceiling // 8 + 1)
                break
            if claim.buried:
                continue
            looks += 1
            if looks == _MAX_LOOKS or not await self._due_left(tenant_id, wanted):
                break
            await asyncio.sleep(random.uniform(0.002, 0.02) * looks)  # noqa: S311 - spreads competitors
        return replace(claim, buried=buried)

    async def ack(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``."""
        return await self._settle("ack", lease_id, sorted_ids(ids), lambda some: {"ids": some})

    async def fail(self, lease_id: UUID, failures: Sequence[Failure]) -> Settled:
        """See ``OutboxStore``. Error texts are cleaned (``clean_error``), waits bounded to ten years."""
        base, cap = self._backoff.base.total_seconds(), self._backoff.cap.total_seconds()
        return await self._settle(
            "fail",
            lease_id,
            unique_failures(failures),
            lambda some: {
                "ids": [each.id for each in some],
                "errors": [each.error for each in some],
                "afters": [None if each.after is None else each.after.total_seconds() for each in some],
                "dead": [each.dead for each in some],
                "base": base,
                "cap": cap,
            },
        )

    async def snooze(self, lease_id: UUID, snoozes: Sequence[Snooze]) -> Settled:
        """See ``OutboxStore``."""
        return await self._settle(
            "snooze",
            lease_id,
            unique_snoozes(snoozes),
            lambda some: {"ids": [each.id for each in some], "untils": [each.until for each in some]},
        )

    async def release(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``."""
        return await self._settle("release", lease_id, sorted_ids(ids), lambda some: {"ids": some})

    async def renew(self, lease_id: UUID, ids: Sequence[int | UUID], lease: timedelta) -> Settled:
        """See ``OutboxStore``."""
        seconds = lease_seconds(lease)
        return await self._settle("renew", lease_id, sorted_ids(ids), lambda some: {"ids": some, "lease": seconds})

    async def kinds(self, tenant_id: str) -> tuple[str, ...]:
        """See ``OutboxStore``."""
        return tuple(kind for (kind,) in await self._query("kinds", {"tenant_id": tenant_id}))

    async def oldest(self, tenant_id: str) -> Oldest:
        """See ``OutboxStore``."""
        ((seconds, ready),) = await self._query("oldest", {"tenant_id": tenant_id, "bound": READY_COUNTED})
        return Oldest(seconds, ready)

    async def cancel(
        self, tenant_id: str, *, ids: Sequence[int | UUID] | None = None, dedup_key: str | None = None
    ) -> Cancelled:
        """See ``ManagedOutbox``."""
        if ids is None and dedup_key is None:
            raise ValueError("ids and dedup_key are both None: one of them must say what to cancel")
        named = {"tenant_id": tenant_id, "ids": None if ids is None else sorted_ids(ids), "dedup_key": dedup_key}
        ((cancelled, held),) = await self._query("cancel", named)
        return Cancelled(cancelled, held)

    async def stats(self, tenant_id: str | None = None) -> list[KindStats]:
        """See ``ManagedOutbox``."""
        return [KindStats(*record) for record in await self._query("stats", {"tenant_id": tenant_id})]

    async def show(self, row_id: int | UUID) -> Shown | None:
        """See ``ManagedOutbox``."""
        (wanted,) = sorted_ids([row_id])
        for found, tenant, kind, state, payload, headers, *rest in await self._query("show", {"id": wanted}):
            return Shown(found, tenant, kind, state, json.loads(payload), json.loads(headers), *rest)
        return None

    async def _claim(self, chosen: Mapping[str, Any], limit: int) -> Claim:
        lease_id = uuid4()

        async def hand_back(records: list[TupleRow]) -> None:
            await self.release(lease_id, [record[2] for record in records if record[2] is not None])

        records = await self._query(
            "claim",
            {**chosen, "limit": limit, "lease_id": lease_id},
            after="no_jit" if limit * len(chosen["kinds"]) > _JIT_THRESHOLD else None,
            abandoned=hand_back,
        )
        buried, alone = records[0][:2]
        rows, unreadable = _rows(chosen["tenant_id"], [record[2:] for record in records if record[2] is not None])
        if unreadable:
            # Else they would come back for ever, and take the rest of their batch along each time.
            buried += (await self.fail(lease_id, unreadable)).dead
        return Claim(lease_id, tuple(rows), buried, alone=bool(alone and rows))

    async def _due_left(self, tenant_id: str, kinds: list[str]) -> bool:
        if len(kinds) == 1:
            return False  # a claim of one kind locks what it takes and no more
        ((left,),) = await self._query("due_left", {"tenant_id": tenant_id, "kinds": kinds})
        return bool(left)

    async def _settle(
        self, name: str, lease_id: UUID, items: list[T], values: Callable[[list[T]], Mapping[str, Any]]
    ) -> Settled:
        """Run a write under a lease; in halves where the server's statement_timeout ends the whole."""
        if not items:
            return Settled(0)
        try:
            ((changed, dead),) = await self._query(name, {"lease_id": lease_id, **values(items)})
        except StatementTimedOut:
            if len(items) == 1:
                raise
            half = len(items) // 2
            first = await self._settle(name, lease_id, items[:half], values)
            return first + await self._settle(name, lease_id, items[half:], values)
        return Settled(changed, len(items) - changed, dead)

    async def _query(
        self,
        name: str,
        values: Mapping[str, Any],
        *,
        after: str | None = None,
        abandoned: Callable[[list[TupleRow]], Awaitable[object]] | None = None,
    ) -> list[TupleRow]:
        """Run a named query; ``after`` another one without parameters, in one transaction."""
        if not self._fits:
            await self.check_schema()
        try:
            return await self._calls.run(self._work(name, values, after), abandoned=abandoned)
        except SchemaError:
            self._fits = False
            raise

    def _work(
        self, name: str, values: Mapping[str, Any] | None, after: str | None = None
    ) -> Callable[[StoreConnection], Awaitable[list[TupleRow]]]:
        async def work(connection: StoreConnection) -> list[TupleRow]:
            if after is None:
                cursor = await connection.execute(self._queries[name], values)
                return await cursor.fetchall()
            async with connection.transaction():
                await connection.execute(self._queries[after])
                cursor = await connection.execute(self._queries[name], values)
                return await cursor.fetchall()

        return work


def _rows(tenant_id: str, records: list[TupleRow]) -> tuple[list[Row], list[Failure]]:
    """Claimed records as rows, and those that cannot be read: JSON that PostgreSQL takes and Python does not."""
    rows, unreadable = [], []
    for row_id, kind, payload, headers, attempts, most, available_at, created_at, suspect, dedup, ordering in records:
        try:
            content, extra = json.loads(payload), json.loads(headers)
        except (ValueError, RecursionError) as error:
            unreadable.append(Failure(row_id, f"the payload cannot be read: {error}", dead=True))
            continue
        rows.append(
            Row(
                row_id,
                tenant_id,
                kind,
                content,
                extra,
                attempts,
                most,
                available_at,
                created_at,
                suspect,
                dedup,
                ordering,
            )
        )
    return rows, unreadable
