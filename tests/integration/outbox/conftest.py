"""Databases with the outbox's schema, and both kinds of outbox."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from embedded.postgres import Postgres
from tests.integration.outbox.benches import Bench, MemoryBench, PostgresBench
from tickkeeper.outbox import PostgresOutbox, migrate_sync


@pytest.fixture(scope="session")
def migrated(postgres_server: Postgres) -> Iterator[str]:
    """The name of a database with the schema, to be copied."""
    dsn = postgres_server.create_database("outbox_template")
    migrate_sync(dsn)
    yield "outbox_template"
    postgres_server.drop_database(dsn)


@pytest.fixture
def dsn(postgres_server: Postgres, migrated: str) -> Iterator[str]:
    """A database of this test alone, with the schema and no rows."""
    dsn = postgres_server.create_database(template=migrated)
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator["psycopg.AsyncConnection[Any]"]:
    """A producer's connection, in autocommit mode."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresOutbox]:
    """The outbox of that database, open."""
    async with PostgresOutbox(dsn) as store:
        yield store


@pytest.fixture
def postgres(store: PostgresOutbox, connection: "psycopg.AsyncConnection[Any]") -> PostgresBench:
    """The real outbox."""
    return PostgresBench(store, connection)


@pytest.fixture
async def small_batches(dsn: str, connection: "psycopg.AsyncConnection[Any]") -> AsyncIterator[PostgresBench]:
    """The real outbox, with claims of at most 100 bytes of payload."""
    async with PostgresOutbox(dsn, max_batch_bytes=100) as store:
        yield PostgresBench(store, connection)


@pytest.fixture(params=["memory", "postgres"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Either outbox: what holds for one holds for the other."""
    if request.param == "memory":
        return MemoryBench()
    bench: Bench = request.getfixturevalue("postgres")
    return bench


@pytest.fixture(params=["memory", "postgres"])
def small_bench(request: pytest.FixtureRequest) -> Bench:
    """Either outbox, with claims of at most 100 bytes of payload."""
    if request.param == "memory":
        return MemoryBench(max_batch_bytes=100)
    bench: Bench = request.getfixturevalue("small_batches")
    return bench
