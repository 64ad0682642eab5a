"""One call of the database: bounded, retried where that is safe, its errors in our own words."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.pool import Pool, StoreConnection, make_pool
from tickkeeper.outbox.store import SchemaError, StoreUnavailable
from tickkeeper.outbox.version import missing

T = TypeVar("T")
Work = Callable[[StoreConnection], Awaitable[T]]

_RETRIED = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_MAX_TURNS = 10
#: A cancelled statement asks the server to cancel, which a frozen server does not answer: a second cancellation closes
#: the connection instead. Seconds after the limit.
_CANCELLED_AGAIN_AFTER = (1.0, 2.0)

#: How long close waits for calls whose callers have gone. Seconds.
_CLOSING = 4.0

_ABSENT = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)
_UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)


class StatementTimedOut(StoreUnavailable):
    """The server's own statement_timeout ended it: a smaller statement might pass."""


class Calls:
    """Runs work on connections of one pool.

    A caller that is cancelled leaves at once; the work goes on in the background to its own end, which is bounded. So
    an ack under way is not lost, and a claim under way can be handed back.
    """

    def __init__(
        self,
        dsn: Dsn,
        *,
        schema: str,
        min_size: int,
        max_size: int,
        transactions: int,
        pool_timeout: float,
        connect_timeout: int,
        call_timeout: float,
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._limit = call_timeout
        self._connect_error: Exception | None = None

        def pool(least: int, most: int, *, lent: bool = False) -> Pool:
            return make_pool(
                dsn,
                min_size=least,
                max_size=most,
                timeout=pool_timeout,
                connect_timeout=connect_timeout,
                report=self._note_connect,
                lent=lent,
            )

        self._pool = pool(min_size, max_size)
        #: Apart, since handlers decide how long they keep one: acks and renewals must not wait for them.
        self._transactions = pool(0, transactions, lent=True)
        #: Who waits for one of these waits as long as others work with theirs, and not for the pool's time only.
        self._turns_to_borrow = asyncio.Semaphore(transactions)
        self._running: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Start connecting; does not wait for it."""
        await self._pool.open()
        await self._transactions.open()

    async def close(self) -> None:
        """Let what runs end, within _CLOSING, and give the connections back."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=_CLOSING)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running), timeout=_CANCELLED_AGAIN_AFTER[0])
        await self._transactions.close(timeout=_CLOSING)
        await self._pool.close(timeout=_CLOSING)

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[StoreConnection]:
        """A connection for a transaction of the caller's own, of any length.

        Waits for its turn while all of them are lent. Not having one then, or losing it, is StoreUnavailable; other
        errors of the statements pass unchanged.
        """
        try:
            async with self._turns_to_borrow, self._transactions.connection() as connection:
                try:
                    yield connection
                except psycopg.errors.ReadOnlySqlTransaction:
                    await connection.close()
                    await self._transactions.drain()
                    raise
                except psycopg.Error as error:
                    if connection.closed:
                        await self._transactions.drain()
                        raise StoreUnavailable(f"the database failed: {self._said(error)}") from error
                    raise
        except PoolTimeout as error:
            raise self._explained(error) from error

    async def run(self, work: Work[T], *, abandoned: Callable[[T], Awaitable[object]] | None = None) -> T:
        """Do ``work`` on a connection, in one transaction at READ COMMITTED, and again where PostgreSQL asks for it.

        ``abandoned`` is given the result when the caller has been cancelled meanwhile. Raises StoreUnavailable
        (StatementTimedOut), SchemaError, ValueError for a value that cannot be sent or stored, and psycopg's other
        errors for what is the statement's own fault.
        """
        task = asyncio.get_running_loop().create_task(self._turns(work))
        self._track(task, limit=self._limit)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if task.cancelled() and not (this and this.cancelling()):
                raise StoreUnavailable(f"the database gave no answer within {self._limit:g} s") from None
            if abandoned:
                self._track(asyncio.get_running_loop().create_task(_when_done(task, abandoned)))
            raise

    def _track(self, task: asyncio.Task[Any], *, limit: float | None = None) -> None:
        loop = asyncio.get_running_loop()
        timers = (
            [loop.call_later(limit + more, task.cancel) for more in (0.0, *_CANCELLED_AGAIN_AFTER)] if limit else []
        )
        self._running.add(task)

        def ended(task: asyncio.Task[Any]) -> None:
            self._running.discard(task)
            for timer in timers:
                timer.cancel()
            if not task.cancelled():
                task.exception()  # seen: an abandoned one has nobody else to look at it

        task.add_done_callback(ended)

    async def _turns(self, work: Work[T]) -> T:
        for turn in count(1):
            try:
                return await self._once(work, explicit=turn > 1)
            except _RETRIED as error:
                if turn == _MAX_TURNS:
                    raise StoreUnavailable(f"given up after {turn} attempts: {self._said(error)}") from error
                await asyncio.sleep(random.uniform(0.005, 0.02) * turn)  # noqa: S311 - spreads competitors
            except psycopg.Error as error:
                raise self._explained(error) from error
        raise AssertionError("unreachable")

    async def _once(self, work: Work[T], *, explicit: bool) -> T:
        async with self._pool.connection() as connection:
            try:
                # One statement in autocommit is a transaction already, at the role's default isolation. After a
                # serialization failure the default may have changed under an open session, so then it is spelt out.
                if connection.read_committed and not explicit:
                    return await work(connection)
                async with connection.transaction():
                    return await work(connection)
            except psycopg.errors.ReadOnlySqlTransaction:
                # After a fail-over this server may stay a standby for ever, while the name leads elsewhere by now.
                await connection.close()
                await self._pool.drain()
                raise
            except psycopg.OperationalError:
                if connection.closed:
                    # Whatever ended this one ended its neighbours too: one call finds out, not each of them.
                    await self._pool.drain()
                raise

    def _explained(self, error: psycopg.Error) -> Exception:
        if isinstance(error, _ABSENT):
            return SchemaError(missing(self._schema))
        if isinstance(error, PoolTimeout):
            if self._connect_error:
                return StoreUnavailable(f"the database cannot be reached: {self._said(self._connect_error)}")
            return StoreUnavailable(f"no connection to the database was free: {error}")
        if isinstance(error, psycopg.errors.QueryCanceled):
            return StatementTimedOut(f"the database gave up: {self._said(error)}")
        if isinstance(error, psycopg.DataError):
            return ValueError(f"the database refuses a value: {self._said(error)}")
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return StoreUnavailable(f"the database's role lacks a grant: {self._said(error)}")
        if isinstance(error, _UNAVAILABLE):
            return StoreUnavailable(f"the database failed: {self._said(error)}")
        return error

    def _said(self, error: Exception) -> str:
        primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
        return self._dsn.scrub(primary or str(error) or type(error).__name__)

    def _note_connect(self, error: Exception | None) -> None:
        self._connect_error = error


async def _when_done(task: "asyncio.Task[T]", abandoned: Callable[[T], Awaitable[object]]) -> None:
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        await abandoned(task.result())
