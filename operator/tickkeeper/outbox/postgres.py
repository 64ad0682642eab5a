"""The outbox in PostgreSQL."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from uuid import UUID

from tickkeeper.outbox.arguments import (
    array_text,
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
from tickkeeper.outbox.calls import Calls, StatementTimedOut
from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.postgres_claim import PostgresClaims, Wanted
from tickkeeper.outbox.postgres_dead import PostgresDeadLetters
from tickkeeper.outbox.postgres_transaction import PostgresTransaction, PostgresTransactions
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.runs import MAX_RUN
from tickkeeper.outbox.statements import Statements
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

T = TypeVar("T")

DEFAULT_LEASE = timedelta(seconds=30)
#: Payload bytes (as text) of one claim, beyond its first row.
MAX_BATCH_BYTES = 32 * 1024 * 1024


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
        transaction_connections: int = 4,
        dead_heads: Literal["skip", "block"] = "skip",
        connect_timeout: int = 5,
        pool_timeout: float = 5.0,
        call_timeout: float = 15.0,
    ) -> None:
        """``dead_heads``: whether a row of an ordering_key that goes to the dead letters is skipped, or blocks the rows
        behind it until it is replayed or purged. ``transaction_connections``: for ``transaction``, opened when needed;
        so many are under way at once, and others wait for their turn.

        ValueError: the dsn cannot be read, the schema's name or the default lease is not allowed.
        """
        lease_seconds(default_lease)
        if dead_heads not in ("skip", "block"):
            raise ValueError(f"dead_heads is {dead_heads!r}: must be skip or block")
        self.default_lease = default_lease
        self._backoff = backoff or Backoff()
        self._max_bytes = max_batch_bytes
        self._block = dead_heads == "block"
        self._calls = Calls(
            Dsn(dsn),
            schema=schema,
            min_size=min_connections,
            max_size=max_connections,
            transactions=transaction_connections,
            pool_timeout=pool_timeout,
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
        )
        self._statements = Statements(self._calls, schema)
        self._claims = PostgresClaims(self._statements, release=self.release, fail=self.fail)
        self._transactions = PostgresTransactions(self._statements, self._calls.borrow)
        self.dead_letters = PostgresDeadLetters(self._statements.query, self._claims.look_after_keys)

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
        await self._statements.check()

    async def claim(self, tenant_id: str, *, kinds: Sequence[str] | None, limit: int, lease: timedelta) -> Claim:
        """See ``OutboxStore``. A batch is also bounded by the bytes of its payloads."""
        limit, seconds = checked_limit(limit), lease_seconds(lease)
        # Resolved beforehand: within the claim the planner takes them for a hundred.
        wanted = list(await self.kinds(tenant_id)) if kinds is None else unique_kinds(kinds)
        return await self._claims.claim(Wanted(tenant_id, wanted, limit, seconds, self._max_bytes, self._block))

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
        try:
            return await self._settle("release", lease_id, sorted_ids(ids), lambda some: {"ids": some})
        finally:
            self._claims.walks.forget()

    async def renew(self, lease_id: UUID, ids: Sequence[int | UUID], lease: timedelta) -> Settled:
        """See ``OutboxStore``."""
        seconds = lease_seconds(lease)
        return await self._settle("renew", lease_id, sorted_ids(ids), lambda some: {"ids": some, "lease": seconds})

    async def kinds(self, tenant_id: str) -> tuple[str, ...]:
        """See ``OutboxStore``."""
        return tuple(kind for (kind,) in await self._statements.query("kinds", {"tenant_id": tenant_id}))

    async def oldest(self, tenant_id: str) -> Oldest:
        """See ``OutboxStore``."""
        ((seconds, ready),) = await self._statements.query("oldest", {"tenant_id": tenant_id, "bound": READY_COUNTED})
        return Oldest(seconds, ready)

    async def cancel(
        self, tenant_id: str, *, ids: Sequence[int | UUID] | None = None, dedup_key: str | None = None
    ) -> Cancelled:
        """See ``ManagedOutbox``."""
        if ids is None and dedup_key is None:
            raise ValueError("ids and dedup_key are both None: one of them must say what to cancel")
        asked = None if ids is None else sorted_ids(ids)
        named = {"tenant_id": tenant_id, "ids": asked, "dedup_key": dedup_key}
        ((gone, held),) = await self._statements.query("cancel", named)
        return Cancelled.of(asked, gone, held)

    def transaction(
        self, lease_id: UUID, ids: Sequence[int | UUID], *, whole: bool = False
    ) -> AbstractAsyncContextManager[PostgresTransaction]:
        """See ``TransactionalStore``."""
        return self._transactions.over(lease_id, sorted_ids(ids), whole=whole)

    async def pause(self, *, tenant_id: str | None = None, kind: str | None = None) -> None:
        """See ``ManagedOutbox``."""
        tenant, kind = paused_names(tenant_id, exact_kind(kind))
        await self._statements.query("pause", {"tenant_id": tenant, "kind": kind})

    async def resume(self, *, tenant_id: str | None = None, kind: str | None = None) -> bool:
        """See ``ManagedOutbox``."""
        tenant, kind = paused_names(tenant_id, kind)
        return bool(await self._statements.query("resume", {"tenant_id": tenant, "kind": kind}))

    async def paused(self) -> list[Pause]:
        """See ``ManagedOutbox``."""
        return [Pause(*record) for record in await self._statements.query("paused", {})]

    async def stats(self, tenant_id: str | None = None) -> list[KindStats]:
        """See ``ManagedOutbox``."""
        return [KindStats(*record) for record in await self._statements.query("stats", {"tenant_id": tenant_id})]

    async def show(self, row_id: int | UUID) -> Shown | None:
        """See ``ManagedOutbox``."""
        (wanted,) = sorted_ids([row_id])
        for found, tenant, kind, state, payload, headers, *rest in await self._statements.query("show", {"id": wanted}):
            return Shown(found, tenant, kind, state, json.loads(payload), json.loads(headers), *rest)
        return None

    async def _settle(
        self, name: str, lease_id: UUID, items: list[T], values: Callable[[list[T]], Mapping[str, Any]]
    ) -> Settled:
        """Run a write under a lease; in halves where the server's statement_timeout ends the whole."""
        if not items:
            return Settled(0)
        given = {"lease_id": lease_id, "asked": values(items)["ids"], "run": MAX_RUN, "block": self._block}
        return await self._part(name, items, lambda some: {**given, **values(some)})

    async def _part(self, name: str, items: list[T], values: Callable[[list[T]], Mapping[str, Any]]) -> Settled:
        given = values(items)
        try:
            ((changed, dead, which),) = await self._statements.query(name, {**given, "ids": array_text(given["ids"])})
        except StatementTimedOut:
            if len(items) == 1:
                raise
            half = len(items) // 2
            first = await self._part(name, items[:half], values)
            return first + await self._part(name, items[half:], values)
        if changed == len(items):
            return Settled(changed, 0, dead)
        lost = sorted(set(given["ids"]) - set(which or ()))
        return Settled(changed, len(items) - changed, dead, tuple(lost))
