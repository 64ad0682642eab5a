"""What only the in-memory outbox has."""

from datetime import UTC, datetime, timedelta

import pytest

from tickkeeper.outbox import Claim, ManagedOutbox, PostgresOutbox
from tickkeeper.testing import InMemoryOutbox

SECOND = timedelta(seconds=1)


def test_both_are_managed_outboxes() -> None:
    both: list[ManagedOutbox] = [InMemoryOutbox(), PostgresOutbox("host=nowhere")]
    assert [each.default_lease for each in both] == [timedelta(seconds=30)] * 2


@pytest.mark.parametrize("lease", [timedelta(), timedelta(days=2)])
def test_a_default_lease_has_bounds(lease: timedelta) -> None:
    for make in (lambda: InMemoryOutbox(default_lease=lease), lambda: PostgresOutbox("host=x", default_lease=lease)):
        with pytest.raises(ValueError, match=r"lease is .*: must be longer than 0 and at most 1 day"):
            make()


async def test_its_clock_runs_and_can_be_moved() -> None:
    outbox = InMemoryOutbox()
    assert abs(outbox.now() - datetime.now(UTC)) < timedelta(minutes=1)
    outbox.enqueue("acme", "mail", 1, delay=timedelta(days=1))
    assert (await outbox.oldest("acme")).ready == 0
    outbox.advance(timedelta(days=1))
    assert (await outbox.oldest("acme")).ready == 1
    with pytest.raises(ValueError, match="by is -1 day"):
        outbox.advance(-timedelta(days=1))


async def test_a_handler_cannot_change_what_is_stored() -> None:
    outbox = InMemoryOutbox()
    payload = {"list": [1]}
    outbox.enqueue("acme", "mail", payload)
    payload["list"].append(2)
    first = await _claim(outbox)
    first.rows[0].payload["list"].clear()
    await outbox.release(first.lease_id, [1])
    assert (await _claim(outbox)).rows[0].payload == {"list": [1]}


async def test_close_keeps_the_rows() -> None:
    outbox = InMemoryOutbox()
    outbox.enqueue("acme", "mail", 1)
    await outbox.close()
    await outbox.close()
    assert len((await _claim(outbox)).rows) == 1


async def _claim(outbox: InMemoryOutbox) -> Claim:
    return await outbox.claim("acme", kinds=None, limit=10, lease=SECOND)
