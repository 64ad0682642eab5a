"""What docs and README promise of tickkeeper.testing."""

from tickkeeper.testing import InMemoryOutbox, tick
from tickkeeper.worker import Dead, Row, handler

SENT: list[object] = []


@handler("mail.*")
async def send(row: Row) -> None:
    if row.payload["user"] is None:
        raise Dead("no user")
    SENT.append(row.payload["user"])


async def test_a_tick_runs_handlers_over_an_outbox_in_memory() -> None:
    SENT.clear()
    outbox = InMemoryOutbox()
    outbox.enqueue("acme", "mail.welcome", {"user": 42})
    outbox.enqueue("acme", "mail.welcome", {"user": None})
    outbox.enqueue("globex", "mail.welcome", {"user": 7})
    result = await tick(outbox, "acme", send)
    assert (result.done, result.dead, SENT) == (1, 1, [42])
