"""Looks at an outbox that cost it little: own connection, own time-outs, beside whatever a worker does."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from psycopg.rows import TupleRow

from tickkeeper.outbox.calls import Calls
from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.pool import StoreConnection
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.statements import Statements

T = TypeVar("T")

#: Every query has a LIMIT and an index that gives its order. The planner does not know of tenants with very many rows:
#: it would fetch all of them, and sort.
_SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "idle_in_transaction_session_timeout": "0",
}
_SET = "SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) AS s (name, value)"
#: What the client waits beyond the server's own time-out, which is the one that should strike. Seconds.
_SLACK = 5.0


class OutboxLooks:
    """One connection for named queries of one schema: opened when needed, given back when long idle.

    Used as an async context manager, or by ``open`` and ``close``. Raises as ``OutboxStore`` does.
    """

    def __init__(
        self, dsn: str, *, schema: str = DEFAULT_SCHEMA, patience: float = 10.0, connect_timeout: int = 5
    ) -> None:
        """``patience``: seconds of the longest transaction. ValueError: the dsn cannot be read, a bad schema name."""
        self._calls = Calls(
            Dsn(dsn),
            schema=schema,
            min_size=0,
            max_size=1,
            transactions=1,  # none is ever begun
            pool_timeout=connect_timeout,
            connect_timeout=connect_timeout,
            call_timeout=patience + _SLACK,
        )
        self.statements = Statements(self._calls, schema)

    async def open(self) -> Self:
        """Make it ready; connects when asked first."""
        await self._calls.open()
        return self

    async def close(self) -> None:
        """Give the connection back; safe to call twice."""
        await self._calls.close()

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def run(self, work: Callable[["Look"], Awaitable[T]], *, seconds: float, checked: bool = True) -> T:
        """Do ``work`` in one transaction, each of whose statements the server ends after ``seconds``.

        ``checked``: see first whether the schema fits the code.
        """
        settings = {**_SETTINGS, "statement_timeout": f"{max(1, round(seconds * 1000))}ms"}

        async def bounded(connection: StoreConnection) -> T:
            async with connection.transaction():
                # Of the transaction and not of the session: a pooler lends each transaction another session.
                await connection.execute(_SET, [list(settings), list(settings.values())])
                return await work(Look(connection, self.statements))

        return await (self.statements.run(bounded) if checked else self._calls.run(bounded))


class Look:
    """Queries within one transaction."""

    def __init__(self, connection: StoreConnection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements

    @property
    def backend_pid(self) -> int:
        """The server process as the connection was told of it: of a pooler's making, behind one."""
        return self._connection.info.backend_pid

    async def all(self, query: str, /, **values: Any) -> list[TupleRow]:
        """The records of a named query."""
        cursor = await self._connection.execute(self._statements[query], values or None)
        return await cursor.fetchall()

    async def one(self, query: str, /, **values: Any) -> TupleRow:
        """The only record of a named query."""
        (record,) = await self.all(query, **values)
        return record

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[None]:
        """What fails inside leaves the transaction usable; either way the tables' locks are given back."""
        async with self._connection.transaction(force_rollback=True):
            yield
