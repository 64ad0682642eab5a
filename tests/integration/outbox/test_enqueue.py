"""Producers: the row is there if, and only if, their transaction commits."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.integration.outbox.benches import PostgresBench, claim, ids
from tickkeeper.outbox import (
    DuplicateRow,
    Enqueued,
    InvalidRow,
    NewRow,
    PostgresOutbox,
    SchemaError,
    enqueue,
    enqueue_many,
    enqueue_many_sync,
    enqueue_sync,
    migrate_sync,
)
from tickkeeper.outbox.new_row import MAX_PAYLOAD_BYTES


async def test_a_row_comes_and_goes_with_the_callers_transaction(dsn: str, store: PostgresOutbox) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        await enqueue(producer, "acme", "mail", 1)
        assert (await store.oldest("acme")).ready == 0
        await producer.rollback()
        await enqueue(producer, "acme", "mail", 2)
        await producer.commit()
    taken = await store.claim("acme", kinds=None, limit=9, lease=timedelta(seconds=9))
    assert [row.payload for row in taken.rows] == [2]


async def test_every_form_of_producer(dsn: str, store: PostgresOutbox) -> None:
    rows = [NewRow("acme", "many", n, {"n": str(n)}, dedup_key=str(n % 2)) for n in range(3)]
    with psycopg.connect(dsn, row_factory=dict_row) as producer:
        assert enqueue_sync(producer, "acme", "one", 1).outcome == "inserted"
        sent = enqueue_many_sync(producer, rows)
        assert enqueue_many_sync(producer, []) == []
    assert [each.outcome for each in sent] == ["inserted", "inserted", "kept"]
    assert (sent[0].id < sent[1].id, sent[2].id) == (True, sent[0].id)
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as producer:
        assert (await enqueue(producer, "acme", "one", 2, delay=timedelta(hours=1))).outcome == "inserted"
        assert [each.outcome for each in await enqueue_many(producer, rows)] == ["kept"] * 3
    assert [(row.kind, row.payload, row.headers) for row in await _all(store)] == [
        ("one", 1, {}),
        ("many", 0, {"n": "0"}),
        ("many", 1, {"n": "1"}),
    ]


async def test_the_wrong_kind_of_connection_is_told(dsn: str, connection: psycopg.AsyncConnection[Any]) -> None:
    row, other = NewRow("acme", "one", 1), connection
    with psycopg.connect(dsn) as producer:
        given: Any = producer
        with pytest.raises(TypeError, match=r"enqueue takes a psycopg\.AsyncConnection: .* use enqueue_sync"):
            await enqueue(given, "acme", "one", 1)
        with pytest.raises(TypeError, match=r"enqueue_many takes .* use enqueue_many_sync"):
            await enqueue_many(given, [row])
    given = other
    with pytest.raises(TypeError, match=r"enqueue_sync takes a psycopg\.Connection: .* use await enqueue"):
        enqueue_sync(given, "acme", "one", 1)
    with pytest.raises(TypeError, match=r"enqueue_many_sync takes .* use await enqueue_many"):
        enqueue_many_sync(given, [row])


async def test_an_invalid_row_leaves_the_transaction_alive(connection: psycopg.AsyncConnection[Any]) -> None:
    async with connection.transaction():
        with pytest.raises(InvalidRow, match="kind is empty"):
            await enqueue(connection, "acme", "", 1)
        with pytest.raises(InvalidRow, match=r"rows\[1\]: max_attempts is 0: must be an integer from 1 to 1000"):
            await enqueue_many(connection, [NewRow("acme", "k", 1), NewRow("acme", "k", 1, max_attempts=0)])
        assert (await enqueue(connection, "acme", "k", 1)).outcome == "inserted"


async def test_the_largest_payload_goes_through_both_doors(postgres: PostgresBench) -> None:
    largest = "x" * (MAX_PAYLOAD_BYTES - 2)
    await postgres.enqueue(payload=largest)
    (row,) = (await claim(postgres)).rows
    assert row.payload == largest


async def test_a_kept_row_waits_for_the_transaction_that_kept_it(dsn: str, postgres: PostgresBench) -> None:
    """Else its handler could run on the state before, and the change would be announced by nobody."""
    kept = await postgres.enqueue(dedup_key="k")
    async with (
        await psycopg.AsyncConnection.connect(dsn) as first,
        await psycopg.AsyncConnection.connect(dsn) as second,
    ):
        assert await enqueue(first, "acme", "mail", 1, dedup_key="k") == Enqueued(kept.id, "kept")
        assert await enqueue(second, "acme", "mail", 1, dedup_key="k") == Enqueued(kept.id, "kept")
        await first.commit()
        assert ids(await claim(postgres)) == []
        await second.commit()
    assert ids(await claim(postgres)) == [kept.id]


async def test_concurrent_producers_of_one_key_leave_one_row(dsn: str, postgres: PostgresBench) -> None:
    async def produce() -> list[str]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as producer:
            return [(await enqueue(producer, "acme", "mail", n, dedup_key="k")).outcome for n in range(20)]

    outcomes = [each for some in await asyncio.gather(*(produce() for _ in range(4))) for each in some]
    assert sorted(outcomes) == ["inserted", *["kept"] * 79]
    assert len((await claim(postgres)).rows) == 1


async def test_keys_are_claimed_and_enqueued_at_once(dsn: str, postgres: PostgresBench) -> None:
    """Whatever the timing: a producer gets an outcome, and what was accepted is delivered after it."""
    sent: list[Enqueued] = []

    async def produce() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as producer:
            for number in range(100):
                how: Any = ("keep", "replace")[number % 2]
                sent.append(await enqueue(producer, "acme", "mail", number, dedup_key="k", on_duplicate=how))

    producers = asyncio.gather(*(produce() for _ in range(3)))
    delivered: list[Any] = []
    while not producers.done():
        taken = await claim(postgres)
        delivered += ids(taken)
        await postgres.store.ack(taken.lease_id, ids(taken))
        await asyncio.sleep(0)
    await producers
    delivered += ids(await claim(postgres))
    assert delivered == [each.id for each in sorted(sent, key=lambda each: each.id) if each.outcome == "inserted"]


async def test_a_duplicate_error_names_field_value_and_rule(connection: psycopg.AsyncConnection[Any]) -> None:
    await enqueue(connection, "acme", "mail", 1, dedup_key="k")
    with pytest.raises(
        DuplicateRow, match='dedup_key is "k": must be unique among the rows of tenant "acme" that wait'
    ):
        await enqueue(connection, "acme", "mail", 1, dedup_key="k", on_duplicate="error")


async def test_without_a_schema_the_command_is_named(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as producer:
        with pytest.raises(SchemaError, match="run `tickkeeper outbox migrate`"):
            await enqueue(producer, "acme", "mail", 1)
    with psycopg.connect(database) as producer, pytest.raises(SchemaError, match="migrate --schema apart`"):
        enqueue_many_sync(producer, [NewRow("acme", "mail", 1)], schema="apart")


async def test_outboxes_of_two_schemas_do_not_meet(dsn: str, connection: psycopg.AsyncConnection[Any]) -> None:
    migrate_sync(dsn, schema="apart")
    await enqueue(connection, "acme", "mail", "here")
    await enqueue(connection, "acme", "mail", "apart", schema="apart")
    async with PostgresOutbox(dsn, schema="apart") as apart:
        assert [row.payload for row in await _all(apart)] == ["apart"]


SQL_FAULTS = {
    "'', 'k', '1'": "tenant_id is empty: must be 1 to 128 characters",
    "NULL, 'k', '1'": "tenant_id is null: must be 1 to 128 characters",
    "repeat('x', 129), 'k', '1'": "tenant_id is 129 characters long: must be 1 to 128 characters",
    "E'a\\nb', 'k', '1'": 'tenant_id is "a\\nb": must hold no control character',
    "'a', '', '1'": "kind is empty: must be 1 to 128 characters",
    "'a', E'\\x7f', '1'": "must hold no control character",
    "'a', 'k', NULL": "payload is null: must be a JSON value",
    "'a', 'k', to_jsonb(repeat('x', 16777215))": "payload is 16777217 bytes long as text: must be at most 16777216",
    "'a', 'k', '1', '[]'": "headers is a JSON array: must be an object of strings",
    "'a', 'k', '1', '{\"n\": 1}'": 'headers["n"] is a JSON number: must be a string',
    "'a', 'k', '1', jsonb_build_object('h', repeat('x', 70000))": "headers is 70009 bytes long as text: must be",
    "'a', 'k', '1', dedup_key => ''": "dedup_key is 0 characters long: must be 1 to 512 characters, or null",
    "'a', 'k', '1', dedup_key => repeat('x', 513)": "dedup_key is 513 characters long: must be 1 to 512",
    "'a', 'k', '1', on_duplicate => 'nope'": 'on_duplicate is "nope": must be keep, replace or error',
    "'a', 'k', '1', on_duplicate => NULL": "on_duplicate is null: must be keep, replace or error",
    "'a', 'k', '1', available_at => 'infinity'": "available_at is infinity: must lie in the years 1 to 9999",
    "'a', 'k', '1', available_at => '-infinity'": "available_at is -infinity: must lie in the years 1 to 9999",
    "'a', 'k', '1', max_attempts => 0": "max_attempts is 0: must be 1 to 1000",
    "'a', 'k', '1', max_attempts => 1001": "max_attempts is 1001: must be 1 to 1000",
    "'a', 'k', '1', max_attempts => NULL": "max_attempts is null: must be 1 to 1000",
}


@pytest.mark.parametrize("arguments", SQL_FAULTS)
async def test_the_function_names_field_value_and_rule(
    connection: psycopg.AsyncConnection[Any], arguments: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        await connection.execute(f"SELECT * FROM tickkeeper.enqueue({arguments})".encode())
    assert SQL_FAULTS[arguments] in str(caught.value)
    assert caught.value.sqlstate == "22023"


@pytest.mark.parametrize("key", ["", "k" * 513])
async def test_the_function_checks_the_ordering_key(connection: psycopg.AsyncConnection[Any], key: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"ordering_key is .* characters long: must be 1 to"):
        await connection.execute("SELECT * FROM tickkeeper.enqueue('a', 'k', '1', ordering_key => %s)", [key])


async def test_any_language_can_enqueue(connection: psycopg.AsyncConnection[Any], postgres: PostgresBench) -> None:
    cursor = await connection.execute(
        """SELECT id, outcome FROM tickkeeper.enqueue('acme', 'mail', '{"to": "a@b.c"}', max_attempts => 1000)"""
    )
    (row_id, outcome) = await cursor.fetchone() or (0, "")
    (row,) = (await claim(postgres)).rows
    assert (outcome, row.id, row.payload, row.max_attempts, row.headers) == (
        "inserted",
        row_id,
        {"to": "a@b.c"},
        1000,
        {},
    )


async def test_a_payload_that_python_cannot_read_is_set_aside(
    connection: psycopg.AsyncConnection[Any], postgres: PostgresBench
) -> None:
    await postgres.enqueue(payload="before")
    await connection.execute("SELECT tickkeeper.enqueue('acme', 'mail', repeat('9', 5000)::jsonb)")
    await postgres.enqueue(payload="after")
    taken = await claim(postgres)
    assert ([row.payload for row in taken.rows], taken.buried) == (["before", "after"], 1)
    (dead,) = await postgres.store.dead_letters.latest()
    assert dead.reason == "rejected"
    assert dead.error is not None
    assert dead.error.startswith("the payload cannot be read: ")


async def test_times_are_the_databases(connection: psycopg.AsyncConnection[Any], postgres: PostgresBench) -> None:
    await connection.execute("SET timezone = 'Asia/Kolkata'")
    due = datetime(2030, 6, 1, 12, tzinfo=UTC)
    row = await postgres.enqueue(available_at=due)
    shown = await postgres.store.show(row.id)
    assert shown is not None
    assert shown.available_at == due


async def _all(store: PostgresOutbox) -> Any:
    return (await store.claim("acme", kinds=None, limit=100, lease=timedelta(seconds=9))).rows
