"""Behind PgBouncer in transaction mode, where each transaction may meet another session."""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from embedded.errors import MissingPart
from embedded.postgres import Postgres
from tests.integration.outbox.benches import LEASE
from tests.integration.outbox.pooler import Pooler, find_pgbouncer
from tickkeeper.outbox import Failure, NewRow, PostgresOutbox, Settled, enqueue_many


@pytest.fixture(scope="module")
def pooler(postgres_server: Postgres) -> Iterator[Pooler]:
    try:
        find_pgbouncer()
    except MissingPart as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))  # the one part of the tests that no package index has
    with Pooler(postgres_server, size=2) as pooler:
        yield pooler


@pytest.fixture
def pooled(pooler: Pooler, dsn: str) -> str:
    return pooler.dsn(dsn)


async def work(store: PostgresOutbox, effects: "defaultdict[str | None, list[Any]]") -> None:
    while (taken := await store.claim("acme", kinds=None, limit=9, lease=LEASE)).rows:
        rows = [row.id for row in taken.rows]
        assert await store.renew(taken.lease_id, rows, LEASE) == Settled(len(rows))
        first, *others = rows
        if taken.rows[0].attempts == 1 and taken.rows[0].payload % 10 == 0:
            assert (await store.fail(taken.lease_id, [Failure(first, "no", after=timedelta())])).changed == 1
            key = taken.rows[0].ordering_key
            others = [row.id for row in taken.rows[1:] if key is None or row.ordering_key != key]
        else:
            effects[taken.rows[0].ordering_key].append(first)
            assert await store.ack(taken.lease_id, [first]) == Settled(1)
        async with store.transaction(taken.lease_id, others) as transaction:
            for row in taken.rows:
                if row.id in transaction.held:
                    async with transaction.savepoint():
                        await transaction.connection.execute("INSERT INTO public.effects VALUES (%s)", [row.id])
                    transaction.done(row.id)
                    effects[row.ordering_key].append(row.id)


async def test_c5_everything_works(pooled: str, connection: "psycopg.AsyncConnection[Any]") -> None:
    await connection.execute("CREATE TABLE public.effects (row bigint PRIMARY KEY)")
    async with await psycopg.AsyncConnection.connect(pooled, prepare_threshold=None) as producer:
        sent = await enqueue_many(
            producer,
            [NewRow("acme", f"k{n % 3}", n, ordering_key=None if n % 2 else f"o{n % 7}") for n in range(300)],
        )
    effects: defaultdict[str | None, list[Any]] = defaultdict(list)
    # More connections than the pooler has sessions: each statement may meet another one.
    async with PostgresOutbox(pooled) as one, PostgresOutbox(pooled) as two:
        await asyncio.gather(*(work(store, effects) for store in (one, two, one, two)))
        assert await one.stats() == []
    every = Counter(row for rows in effects.values() for row in rows)
    assert every == Counter(each.id for each in sent)
    for key, rows in effects.items():
        if key is not None:
            assert rows == sorted(rows)


async def test_c5_nothing_is_left_in_the_sessions_of_others(pooled: str) -> None:
    async with PostgresOutbox(pooled) as store:
        await store.pause(tenant_id="acme")
        await store.claim("acme", kinds=[f"k{n}" for n in range(60)], limit=500, lease=LEASE)
        await store.resume(tenant_id="acme")
        await store.dead_letters.replay()
        await asyncio.gather(*(store.oldest("acme") for _ in range(8)))
    of_the_pooler = "'application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings'"
    questions = (
        "SELECT count(*) FROM pg_prepared_statements",
        f"SELECT count(*) FROM pg_settings WHERE source = 'session' AND name NOT IN ({of_the_pooler})",
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
    )
    async with (
        await psycopg.AsyncConnection.connect(pooled, prepare_threshold=None) as one,
        await psycopg.AsyncConnection.connect(pooled, prepare_threshold=None) as two,
    ):
        for session in (one, two):
            for question in questions:
                cursor = await session.execute(question.encode())
                assert await cursor.fetchone() == (0,), question
