"""The named queries of one schema, run on the database."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from psycopg.rows import TupleRow

from tickkeeper.outbox.calls import Calls
from tickkeeper.outbox.pool import StoreConnection
from tickkeeper.outbox.queries import queries
from tickkeeper.outbox.store import SchemaError
from tickkeeper.outbox.version import misfit

T = TypeVar("T")
Abandoned = Callable[[T], Awaitable[object]]


class Statements:
    """Runs named queries, once the schema was seen to fit. Raises as ``Calls.run`` does."""

    def __init__(self, calls: Calls, schema: str) -> None:
        self.schema = schema
        self._calls = calls
        self._queries = queries(schema)
        self._fits = False

    def __getitem__(self, name: str) -> bytes:
        """The text of a query."""
        return self._queries[name]

    async def check(self) -> None:
        """Raise SchemaError unless the schema is there and fits this code. Everything else does so when it must."""
        self._fits = False
        records = await self._calls.run(self._work("schema_version", None))
        version, compatible_with = records[0] if records else (0, None)
        if complaint := misfit(self.schema, version, compatible_with):
            raise SchemaError(complaint)
        self._fits = True

    async def ready(self) -> None:
        """Check the schema, unless it was seen to fit."""
        if not self._fits:
            await self.check()

    async def query(self, name: str, values: Mapping[str, Any]) -> list[TupleRow]:
        """The records of one query."""
        return await self.run(self._work(name, values))

    async def run(self, work: Callable[[StoreConnection], Awaitable[T]], *, abandoned: Abandoned[T] | None = None) -> T:
        """Do ``work``; see ``Calls.run``."""
        await self.ready()
        try:
            return await self._calls.run(work, abandoned=abandoned)
        except SchemaError:
            self._fits = False
            raise

    def _work(
        self, name: str, values: Mapping[str, Any] | None
    ) -> Callable[[StoreConnection], Awaitable[list[TupleRow]]]:
        async def work(connection: StoreConnection) -> list[TupleRow]:
            cursor = await connection.execute(self._queries[name], values)
            return await cursor.fetchall()

        return work
