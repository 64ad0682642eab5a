"""Exactly once, on the store's own database: rows leave in the transaction of their handlers' effects.

The rows are locked first and deleted last. Locked is as good as deleted (claims pass over what is locked), a row whose
handler failed needs no undoing, one deletion serves all, and the keys of ordered rows are held for the commit only.
Where all of them stand or fall together, and have no keys, they are deleted first: that locks them as well, and spares
a statement and a quarter of the work.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from tickkeeper.outbox.arguments import array_text, sorted_ids
from tickkeeper.outbox.pool import StoreConnection
from tickkeeper.outbox.statements import Statements
from tickkeeper.outbox.store import StoreUnavailable

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
            if self._lost:
                raise StoreUnavailable("the connection of the transaction was lost") from None
            await self._send(_UNDO)
            self._open = False
            raise
        if self._status == TransactionStatus.INERROR:
            # The handler swallowed an error of the database: what it meant to do has not happened.
            await self._send(_UNDO)
            self._open = False
            raise psycopg.errors.InFailedSqlTransaction("a statement of the handler failed, and it did not say so")

    def check(self) -> None:
        """Raise unless what is about to be committed is all that was done."""
        if self._lost:
            raise StoreUnavailable("the connection of the transaction was lost")
        if self._status == TransactionStatus.INERROR:
            raise psycopg.errors.InFailedSqlTransaction("a statement of the handler failed, and it did not say so")
        if self._status != TransactionStatus.INTRANS:
            raise psycopg.errors.InvalidTransactionState("the handler ended the transaction, which is not its own")

    @property
    def _status(self) -> TransactionStatus:
        return self._connection.info.transaction_status

    @property
    def _lost(self) -> bool:
        return self._status == TransactionStatus.UNKNOWN

    async def _send(self, statement: str) -> None:
        try:
            await self._connection.execute(statement.encode())
        except psycopg.OperationalError as error:
            if self._lost:
                raise StoreUnavailable("the connection of the transaction was lost") from error
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
            begin = self._statements["hold_gone" if whole else "hold"]
            ((held,),) = await (await connection.execute(begin, given)).fetchall()
            work = PostgresTransaction(connection, ids, ids if held is None else held)
            yield work
            work.check()
            if (leaving := work.leaving) and not whole:
                given = {"ids": array_text(leaving), "lease_id": lease_id}
                ((left,),) = await (await connection.execute(self._statements["leave"], given)).fetchall()
                if left != len(leaving):
                    raise StoreUnavailable(f"{len(leaving) - left} locked rows were gone; nothing was committed")
