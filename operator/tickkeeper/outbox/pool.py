"""The connection pool: bounded, self-healing, and quiet while the database is away."""

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, AsyncServerCursor, IsolationLevel
from psycopg.rows import TupleRow, tuple_row
from psycopg_pool import AsyncConnectionPool

from tickkeeper.outbox.dsn import Dsn

#: Between two attempts to connect while somebody waits: constant, because after an outage nobody should wait longer
#: than the outage lasted. (The pool's own pause doubles each time, up to minutes.)
_RECONNECT_PAUSE = 0.2
#: A connection that answered this recently (seconds) is handed out without asking whether it lives: the question would
#: double the round trips of a drain.
_TRUSTED_FOR = 1.0

#: What a connection that comes back from a handler gets to be made as new in; else it is closed.
_RESET_SECONDS = 2.0

_numbers = count(1)


class StoreConnection(AsyncConnection[TupleRow]):
    """A connection that knows whether its role's default isolation is READ COMMITTED."""

    read_committed = False
    checked_at = 0.0


Pool = AsyncConnectionPool[StoreConnection]


def make_pool(
    dsn: Dsn,
    *,
    min_size: int,
    max_size: int,
    timeout: float,
    connect_timeout: int,
    report: Callable[[Exception | None], None],
    lent: bool = False,
) -> Pool:
    """A pool, not yet opened. Times in seconds; ``timeout`` is how long a caller waits for a connection.

    ``lent``: its connections are given to handlers, and are as new afterwards.
    ``report`` is told why an attempt to connect failed, and None when one succeeded.
    """

    class Reporting(StoreConnection):
        @classmethod
        async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
            try:
                connection = await super().connect(conninfo, **kwargs)
            except Exception as error:
                report(error)
                raise
            report(None)
            return connection

    async def check(connection: StoreConnection) -> None:
        if time.monotonic() - connection.checked_at < _TRUSTED_FOR and not connection.closed:
            return
        try:
            await connection.execute("")
        except psycopg.Error:
            # Whatever killed this one killed its neighbours too: without this they would be tried one by one, with a
            # pause that doubles each time.
            await pool.drain()
            raise
        connection.checked_at = time.monotonic()

    name = f"outbox-{next(_numbers)}"
    pool: Pool = AsyncConnectionPool(
        # An application_name of the user's own, and the like, win over these.
        dsn.conninfo(
            application_name="tickkeeper",
            connect_timeout=connect_timeout,
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
            client_encoding="UTF8",
        ),
        connection_class=Reporting,
        # Never prepared statements: a pooler in transaction mode hands each transaction another session.
        kwargs={"autocommit": True, "prepare_threshold": None},
        name=name,
        min_size=min_size,
        max_size=max_size,
        timeout=timeout,
        open=False,
        configure=_configure,
        check=check,
        reset=_as_new if lent else None,
        # Give up at the second failure; _try_again decides whether anybody still wants a connection.
        reconnect_timeout=0,
        reconnect_failed=_try_again,
    )
    _quiet(name)
    return pool


async def _configure(connection: StoreConnection) -> None:
    # No SET: in transaction mode it would stick to whichever session the pooler lent.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    cursor = await connection.execute("SELECT current_setting('default_transaction_isolation')")
    row = await cursor.fetchone()
    connection.read_committed = row is not None and row[0] == "read committed"
    connection.checked_at = time.monotonic()


async def _as_new(connection: StoreConnection) -> None:
    """What one handler has set must not be the next one's, which may be another tenant's."""
    connection.row_factory = tuple_row
    connection.cursor_factory = AsyncCursor
    connection.server_cursor_factory = AsyncServerCursor
    connection.prepare_threshold = None
    # A server that does not answer must not keep the pool's own tasks, which open new connections too.
    async with asyncio.timeout(_RESET_SECONDS):
        await connection.execute("DISCARD ALL")


async def _try_again(pool: AsyncConnectionPool[Any]) -> None:
    await asyncio.sleep(_RECONNECT_PAUSE)
    if pool.get_stats().get("requests_waiting"):
        await pool.check()  # lets the pool grow again


class _Quiet(logging.Filter):
    """Drops what our pools say about single attempts and connections: callers get the cause in StoreUnavailable."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        return record.levelno > logging.WARNING or not any(map(self._ours, arguments))

    def _ours(self, argument: object) -> bool:
        return isinstance(argument, StoreConnection) or (isinstance(argument, str) and argument in self.pools)


_filter = _Quiet()


def _quiet(name: str) -> None:
    _filter.pools.add(name)
    logging.getLogger("psycopg.pool").addFilter(_filter)  # adding twice is once
