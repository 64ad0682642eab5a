"""What docs and README promise of tickkeeper.testing."""

from typing import Any

import pytest

from tickkeeper.testing import InMemoryOutbox, tick
from tickkeeper.worker import Dead, Row, handler
from tickkeeper.worker.handlers import HandlerError

SENT: list[object] = []


@handler("mail.*")
async def send(row: Row) -> None:
    if row.payload["user"] is None:
        raise Dead("no user")
    SENT.append(row.payload["user"])


@handler("ledger", transaction=True)
async def book(row: Row, connection: Any) -> None:
    connection.append(row.payload)


async def test_a_transaction_needs_something_in_place_of_a_connection() -> None:
    outbox = InMemoryOutbox()
    outbox.enqueue("acme", "ledger", 7)
    with pytest.raises(HandlerError, match=r"test_ticking\.book has transaction=True: .* InMemoryOutbox\(connection="):
        await tick(outbox, "acme", book)
    written: list[object] = []
    outbox = InMemoryOutbox(connection=written)
    outbox.enqueue("acme", "ledger", 7)
    assert (await tick(outbox, "acme", book)).done == 1
    assert written == [7]


async def test_a_tick_runs_handlers_over_an_outbox_in_memory() -> None:
    SENT.clear()
    outbox = InMemoryOutbox()
    outbox.enqueue("acme", "mail.welcome", {"user": 42})
    outbox.enqueue("acme", "mail.welcome", {"user": None})
    outbox.enqueue("globex", "mail.welcome", {"user": 7})
    result = await tick(outbox, "acme", send)
    assert (result.done, result.dead, SENT) == (1, 1, [42])
