"""Rows of one ordering_key are handled in their order, whatever fails and however many workers there are."""

import asyncio
import random
from collections import defaultdict
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.worker.process import rows
from tickkeeper.outbox import PostgresOutbox, migrate_sync
from tickkeeper.worker import Retry
from tickkeeper.worker.handlers import Kinds, Registry, as_handler
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.limits import Limits
from tickkeeper.worker.tick import drain

KEYS, DEEP = 25, 20


@pytest.fixture
def outbox(database: str) -> str:
    """Rows of many keys, mixed, and as many without one."""
    migrate_sync(database)
    numbers = [(key, place) for place in range(DEEP) for key in range(KEYS)]
    random.Random(3).shuffle(numbers)
    places: dict[int, int] = defaultdict(int)
    with psycopg.connect(database) as connection:
        for key, _ in numbers:
            place, places[key] = places[key], places[key] + 1
            for ordering_key in (f"k{key}", None):
                connection.execute(
                    "SELECT tickkeeper.enqueue('acme', %s, %s::jsonb, ordering_key => %s)",
                    (f"kind.{place % 3}", f'{{"key": {key}, "place": {place}}}', ordering_key),
                )
    return database


@pytest.mark.parametrize("transaction", [False, True])
async def test_two_workers_and_failures_leave_each_key_in_order(outbox: str, transaction: bool) -> None:
    delivered: dict[str, list[int]] = defaultdict(list)
    unordered, chance = 0, random.Random(5)

    async def handle(row: Any, *_connection: Any) -> Any:
        nonlocal unordered
        await asyncio.sleep(0)
        if chance.random() < 0.03:
            return Retry(0.05)
        if row.ordering_key is None:
            unordered += 1
        else:
            delivered[row.ordering_key].append(row.payload["place"])
        return None

    # One kind in three is handled in transactions, or one by one: a key's run crosses from one way to the other.
    registry = Registry(
        [
            as_handler(handle, Kinds.of("kind.0"), transaction=transaction),
            as_handler(handle, Kinds.of("kind.1"), concurrency=2),
            as_handler(handle, Kinds.of("kind.2")),
        ]
    )

    async def worker(store: PostgresOutbox) -> int:
        invoker, done = Invoker(default_timeout=20), 0
        limits = Limits(batch_size=40, lease=timedelta(seconds=20), budget=timedelta(seconds=5))
        while rows(outbox, "id"):
            result = await drain(store, "acme", registry, invoker=invoker, limits=limits)
            assert result.fenced == 0
            done += result.done
            await asyncio.sleep(0.02)
        return done

    async with asyncio.timeout(60), PostgresOutbox(outbox) as one, PostgresOutbox(outbox) as two:
        shares = await asyncio.gather(worker(one), worker(two))
    assert sum(shares) == 2 * KEYS * DEEP
    assert all(shares)
    assert unordered == KEYS * DEEP
    assert dict(delivered) == {f"k{key}": list(range(DEEP)) for key in range(KEYS)}


@pytest.mark.parametrize("transaction", [False, True])
async def test_a_batch_handler_that_fails_costs_the_first_row_of_each_run_an_attempt(
    outbox: str, transaction: bool
) -> None:
    calls: list[list[Any]] = []

    async def handle(batch: Any, *_connection: Any) -> None:
        calls.append(list(batch))
        if len(calls) == 1:
            raise ValueError("no")

    kinds = Kinds.of("kind.0", "kind.1", "kind.2")
    registry = Registry([as_handler(handle, kinds, batch=True, transaction=transaction)])
    invoker, limits = Invoker(default_timeout=20), Limits(batch_size=200, lanes=1, budget=timedelta(milliseconds=1))
    async with asyncio.timeout(60), PostgresOutbox(outbox) as store:
        result = await drain(store, "acme", registry, invoker=invoker, limits=limits)
        [first] = calls
        runs = {row.ordering_key for row in first} - {None}
        assert runs
        alone = sum(row.ordering_key is None for row in first)
        assert (result.claimed, result.fenced, result.retried) == (len(first), 0, alone + len(runs))
        assert result.released == len(first) - alone - len(runs)
        with psycopg.connect(outbox) as connection:  # they need not wait for their retry
            connection.execute("UPDATE tickkeeper.outbox SET available_at = now() WHERE available_at < 'infinity'")
        while rows(outbox, "id"):
            result = await drain(store, "acme", registry, invoker=invoker, limits=Limits(batch_size=200))
            assert result.fenced == 0
            await asyncio.sleep(0.02)
    delivered: dict[str, list[int]] = defaultdict(list)
    for call in calls[1:]:
        for row in call:
            if row.ordering_key is not None:
                delivered[row.ordering_key].append(row.payload["place"])
    assert dict(delivered) == {f"k{key}": list(range(DEEP)) for key in range(KEYS)}
