"""Exactly once, on the store's own database: rows leave in the transaction of their handlers' effects.

The rows are locked first and deleted last. Locked is as good as deleted (claims pass over what is locked), a row whose
handler failed needs no undoing, one deletion serves all, and the keys of ordered rows are held for the commit only.
Where all of them stand or fall together, and have no keys, they are deleted first: that locks them as well, and spares
a statement and a quarter of the work.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row

from tickkeeper.outbox.arguments import array_text, sorted_ids
from tickkeeper.outbox.pool import StoreConnection
from tickkeeper.outbox.statements import Statements
from tickkeeper.outbox.store import StoreUnavailable

_LEFT_RUNNING = "the handler left a statement running on its connection, or did not read its result to the end"
_FAILED = "a statement of the handler failed, and it did not say so"
_LOST = "the connection of the transaction was lost"
_NOT_ITS_OWN = "the handler ended the transaction, which is not its own"
#: What a statement that was left running gets to end in, once it is cancelled.
_HUSH_SECONDS = 2.0

_SET = "SAVEPOINT tickkeeper_row"
_NEXT = "RELEASE SAVEPOINT tickkeeper_row; SAVEPOINT tickkeeper_row"
_UNDO = "ROLLBACK TO SAVEPOINT tickkeeper_row; RELEASE SAVEPOINT tickkeeper_row"


class PostgresTransaction:
    """See ``RowTransaction``."""

    def __init__(self, connection: StoreConnection, asked: Sequence[int], held: Sequence[int]) -> None:
        self._connection = connection
        self._held = frozenset(held)
        self._fenced = frozenset(asked) - self._held
        self._done: set[int] = set()
        #: a savepoint of a handler that succeeded is still there, to be released together with the next one's making
        self._open = False

    @property
    def connection(self) -> AsyncConnection[Any]:
        """For the handlers' statements."""
        return self._connection

    @property
    def held(self) -> frozenset[int | UUID]:
        """The rows that are ours."""
        return self._held

    @property
    def fenced(self) -> frozenset[int | UUID]:
        """Those asked for that are not."""
        return self._fenced

    @property
    def leaving(self) -> list[int]:
        """The rows that were done, ascending."""
        return sorted(self._done)

    def done(self, *ids: int | UUID) -> None:
        """These rows were handled."""
        wanted = set(sorted_ids(ids))
        if strange := wanted - self._held:
            raise ValueError(f"row id is {min(strange)}: must be one that this transaction holds")
        self._done |= wanted

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Around one handler."""
        return self._savepoint()

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[None]:
        await self._send(_NEXT if self._open else _SET)
        self._open = True
        try:
            yield
        except BaseException:
            await self._undo(_LOST)
            raise
        if (fault := self._fault) is not None:
            await self._undo(fault)
            raise psycopg.errors.InFailedSqlTransaction(fault)

    async def _undo(self, lost: str) -> None:
        """Back to the savepoint. Raises StoreUnavailable(lost) where the connection is gone, or has to be closed."""
        await self.hush()
        if self._lost:
            raise StoreUnavailable(lost) from None
        await self._send(_UNDO)
        self._open = False

    @property
    def _fault(self) -> str | None:
        """Why what a handler meant to do cannot be taken for done, although it raised nothing."""
        if self._busy:
            return _LEFT_RUNNING
        return _FAILED if self._status == TransactionStatus.INERROR else None

    async def check(self) -> None:
        """Raise unless what is about to be committed is all that was done, and can be committed."""
        if self._lost:
            raise StoreUnavailable(_LOST)
        if (fault := self._fault) is not None:
            await self.hush()
            raise psycopg.errors.InFailedSqlTransaction(fault)
        if self._status != TransactionStatus.INTRANS:
            raise psycopg.errors.InvalidTransactionState(_NOT_ITS_OWN)

    async def hush(self) -> None:
        """What the handler left running on its connection ends, or else the connection does. Bounded.

        Whatever ends the transaction would wait for it without bound.
        """
        if self._connection.closed or not self._busy:
            return
        await self._cancel()
        try:
            async with asyncio.timeout(_HUSH_SECONDS):
                async with self._connection.lock:
                    pass
        except TimeoutError:
            await self._close()
            return
        if self._busy:
            await self._close()

    async def abandon(self) -> None:
        """Nothing of it is committed, whatever its handler, which may still run, does with the connection."""
        if self._busy:
            await self._cancel()
        await self._close()

    async def _cancel(self) -> None:
        with suppress(psycopg.Error, OSError, TimeoutError):
            await self._connection.cancel_safe(timeout=_HUSH_SECONDS)

    async def _close(self) -> None:
        with suppress(psycopg.Error, OSError, ValueError):
            # Somebody may be waiting on it, and its number may be the next connection's.
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
        await self._connection.close()

    @property
    def _busy(self) -> bool:
        """Whether a statement runs on the connection, or its result is not read to the end."""
        return self._connection.lock.locked() or self._status == TransactionStatus.ACTIVE

    @property
    def _status(self) -> TransactionStatus:
        return self._connection.info.transaction_status

    @property
    def _lost(self) -> bool:
        return self._status == TransactionStatus.UNKNOWN

    async def _send(self, statement: str) -> None:
        try:
            await _own_cursor(self._connection).execute(statement.encode())
        except psycopg.OperationalError as error:
            if self._lost:
                raise StoreUnavailable(_LOST) from error
            raise


class PostgresTransactions:
    """``transaction`` of PostgresOutbox. ``borrow`` lends a connection of these transactions' own pool."""

    def __init__(
        self, statements: Statements, borrow: Callable[[], AbstractAsyncContextManager[StoreConnection]]
    ) -> None:
        self._statements = statements
        self._borrow = borrow

    @asynccontextmanager
    async def over(
        self, lease_id: UUID, ids: Sequence[int], *, whole: bool = False
    ) -> AsyncIterator[PostgresTransaction]:
        """A transaction over rows; see ``TransactionalStore``."""
        await self._statements.ready()
        async with self._borrow() as connection, connection.transaction():
            given = {"ids": array_text(ids), "lease_id": lease_id}
            held, this = await self._record(connection, "leave" if whole else "hold", given)
            work = PostgresTransaction(connection, ids, ids if held is None else held)
            try:
                yield work
            except BaseException:
                await work.hush()
                raise
            await work.check()
            if whole:
                (now,) = await self._record(connection, "same_transaction", None)
            elif leaving := work.leaving:
                given = {"ids": array_text(leaving), "lease_id": lease_id}
                left, now = await self._record(connection, "leave", given)
                if left is not None:
                    raise StoreUnavailable(f"{len(leaving) - len(left)} locked rows were gone; nothing was committed")
            else:
                return
            if now != this:
                raise psycopg.errors.InvalidTransactionState(_NOT_ITS_OWN)

    async def _record(self, connection: StoreConnection, name: str, given: Mapping[str, Any] | None) -> TupleRow:
        cursor = await _own_cursor(connection).execute(self._statements[name], given)
        (record,) = await cursor.fetchall()
        return record


def _own_cursor(connection: StoreConnection) -> AsyncCursor[TupleRow]:
    """Whatever the handler has set as the connection's own."""
    return AsyncCursor(connection, row_factory=tuple_row)
