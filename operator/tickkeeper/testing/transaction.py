"""A transaction of the in-memory outbox."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

from tickkeeper.outbox.arguments import sorted_ids
from tickkeeper.testing.entry import Entry


class InMemoryTransaction:
    """See ``RowTransaction``. Undoing what handlers did is up to whatever ``connection`` stands for."""

    def __init__(self, connection: Any, asked: Sequence[int], held: Sequence[int]) -> None:
        self.connection = connection
        self.held: frozenset[int | UUID] = frozenset(held)
        self.fenced: frozenset[int | UUID] = frozenset(asked) - self.held
        self.leaving: set[int] = set()

    def done(self, *ids: int | UUID) -> None:
        """These rows were handled."""
        wanted = set(sorted_ids(ids))
        if strange := wanted - self.held:
            raise ValueError(f"row id is {min(strange)}: must be one that this transaction holds")
        self.leaving |= wanted

    async def abandon(self) -> None:
        """A handler was told to stop, and may still use the connection."""
        await self.connection.close()

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Around one handler."""
        return _savepoint()


@asynccontextmanager
async def _savepoint() -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def locked(rows: Sequence[Entry]) -> AsyncIterator[None]:
    """Rows that no claim takes meanwhile."""
    for row in rows:
        row.locked = True
    try:
        yield
    finally:
        for row in rows:
            row.locked = False
