"""Transactional handlers in the tests of an application: the in-memory outbox hands them a connection of the test's."""

from tickkeeper.testing import InMemoryOutbox, tick
from tickkeeper.worker import handler


async def test_the_row_and_its_effect_go_together():
    connection, seen = object(), []

    @handler("pay", transaction=True)
    async def pay(row, given):
        assert given is connection
        seen.append(row.payload["n"])
        if row.payload["n"] == 2:
            raise ValueError("no")

    outbox = InMemoryOutbox(connection=connection)
    for n in range(4):
        outbox.enqueue("acme", "pay", {"n": n})
    result = await tick(outbox, "acme", pay)
    assert (result.done, result.retried, result.fenced) == (3, 1, 0)
    assert seen == [0, 1, 2, 3]


async def test_a_list_of_rows_with_the_connection():
    lists = []

    @handler("pay", transaction=True, batch=True)
    async def pay(rows, connection):
        lists.append([row.payload["n"] for row in rows])

    outbox = InMemoryOutbox(connection=object())
    for n in range(4):
        outbox.enqueue("acme", "pay", {"n": n})
    assert (await tick(outbox, "acme", pay)).done == 4
    assert lists == [[0, 1, 2, 3]]


async def test_keys_keep_their_order_and_wait_for_their_head():
    seen = []

    @handler("pay", transaction=True)
    async def pay(row, connection):
        seen.append((row.ordering_key, row.payload["n"]))
        if row.payload["n"] == 1 and row.ordering_key == "a":
            raise ValueError("no")

    outbox = InMemoryOutbox(connection=object())
    for n in range(3):
        for key in ("a", "b"):
            outbox.enqueue("acme", "pay", {"n": n}, ordering_key=key)
    result = await tick(outbox, "acme", pay)
    assert (result.done, result.retried, result.fenced) == (4, 1, 0)
    assert [n for key, n in seen if key == "a"] == [0, 1]
    assert [n for key, n in seen if key == "b"] == [0, 1, 2]
