"""One outbox of either kind with what a test needs around it: producers, and time that passes without waiting."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psycopg

from tickkeeper.outbox import Claim, Enqueued, ManagedOutbox, PostgresOutbox, enqueue
from tickkeeper.testing import InMemoryOutbox

LEASE = timedelta(seconds=30)


class Bench(Protocol):
    """An outbox under test."""

    store: ManagedOutbox

    async def enqueue(
        self, kind: str = "mail", payload: Any = None, *, tenant: str = "acme", **fields: Any
    ) -> Enqueued:
        """Put one row in, committed."""
        ...

    async def elapse(self, by: timedelta) -> None:
        """Let time pass for every row."""
        ...

    def now(self) -> datetime:
        """What the outbox takes for now."""
        ...


class MemoryBench:
    """The fake."""

    def __init__(self, **options: Any) -> None:
        self.store = InMemoryOutbox(**options)

    async def enqueue(
        self, kind: str = "mail", payload: Any = None, *, tenant: str = "acme", **fields: Any
    ) -> Enqueued:
        return self.store.enqueue(tenant, kind, payload, **fields)

    async def elapse(self, by: timedelta) -> None:
        self.store.advance(by)

    def now(self) -> datetime:
        return self.store.now()


class PostgresBench:
    """The real one. Time passes by moving the rows into the past."""

    def __init__(self, store: PostgresOutbox, connection: "psycopg.AsyncConnection[Any]") -> None:
        self.store = store
        self.connection = connection

    async def enqueue(
        self, kind: str = "mail", payload: Any = None, *, tenant: str = "acme", **fields: Any
    ) -> Enqueued:
        return await enqueue(self.connection, tenant, kind, payload, **fields)

    async def elapse(self, by: timedelta) -> None:
        await self.connection.execute(
            "UPDATE tickkeeper.outbox SET lease_until = lease_until - %(by)s, available_at = available_at - %(by)s, "
            "due_at = due_at - %(by)s, created_at = created_at - %(by)s",
            {"by": by},
        )
        await self.connection.execute("UPDATE tickkeeper.outbox_dead SET died_at = died_at - %(by)s", {"by": by})

    def now(self) -> datetime:
        return datetime.now(UTC)  # the server is on this machine


async def claim(
    bench: Bench,
    *,
    limit: int = 100,
    kinds: Sequence[str] | None = None,
    tenant: str = "acme",
    lease: timedelta = LEASE,
) -> Claim:
    """A claim with what most tests do not care about filled in."""
    return await bench.store.claim(tenant, kinds=kinds, limit=limit, lease=lease)


def ids(taken: Claim) -> list[Any]:
    """The ids of its rows, in their order."""
    return [row.id for row in taken.rows]
