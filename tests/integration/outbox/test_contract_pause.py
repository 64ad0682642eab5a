"""Pauses and transactions of handlers, of either outbox."""

from datetime import timedelta

import pytest

from tests.integration.outbox.benches import LEASE, Bench, claim, ids
from tickkeeper.outbox import Failure, Settled


async def test_a_paused_kind_is_left_and_goes_on(bench: Bench) -> None:
    a, b = await bench.enqueue("a"), await bench.enqueue("b")
    other = await bench.enqueue("a", tenant="other")
    await bench.store.pause(tenant_id="acme", kind="a")
    await bench.store.pause(tenant_id="acme", kind="a")
    assert [(each.tenant_id, each.kind) for each in await bench.store.paused()] == [("acme", "a")]
    assert ids(await claim(bench)) == [b.id]
    assert ids(await claim(bench, kinds=["a"])) == []
    more = await bench.enqueue("a")
    assert ids(await claim(bench, tenant="other")) == [other.id]
    assert await bench.store.resume(tenant_id="acme", kind="a")
    assert not await bench.store.resume(tenant_id="acme", kind="a")
    assert ids(await claim(bench)) == [a.id, more.id]


async def test_a_tenant_and_a_kind_of_all_tenants_can_be_paused(bench: Bench) -> None:
    for tenant in ("acme", "other"):
        for kind in ("a", "b"):
            await bench.enqueue(kind, tenant=tenant)
    await bench.store.pause(tenant_id="acme")
    await bench.store.pause(kind="b")
    assert not await bench.store.resume(tenant_id="acme", kind="b")
    assert ids(await claim(bench, tenant="acme")) == []
    assert [row.kind for row in (await claim(bench, tenant="other")).rows] == ["a"]
    await bench.store.resume(tenant_id="acme")
    assert [row.kind for row in (await claim(bench, tenant="acme")).rows] == ["a"]


async def test_what_a_worker_has_is_finished_and_nobody_is_buried_meanwhile(bench: Bench) -> None:
    row = await bench.enqueue(max_attempts=1)
    taken = await claim(bench)
    await bench.store.pause(tenant_id="acme")
    await bench.elapse(LEASE)
    assert (await claim(bench)).buried == 0
    assert await bench.store.ack(taken.lease_id, [row.id]) == Settled(1)


async def test_a_key_waits_where_its_first_row_is_paused_and_a_run_ends_there(bench: Bench) -> None:
    rows = [(await bench.enqueue(kind, ordering_key="k")).id for kind in ("a", "b", "a")]
    await bench.store.pause(kind="b")
    taken = await claim(bench)
    assert ids(taken) == rows[:1]
    await bench.store.ack(taken.lease_id, rows[:1])
    assert ids(await claim(bench)) == []
    await bench.store.resume(kind="b")
    assert ids(await claim(bench)) == rows[1:]


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({}, "tenant_id and kind are both None"),
        ({"kind": ""}, "kind is empty"),
        ({"tenant_id": "x" * 200}, "tenant_id is 200 characters long"),
    ],
)
async def test_a_pause_names_something(bench: Bench, named: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        await bench.store.pause(**named)
    with pytest.raises(ValueError, match=told):
        await bench.store.resume(**named)


async def test_a_pattern_of_kinds_cannot_be_paused(bench: Bench) -> None:
    with pytest.raises(ValueError, match=r"kind is 'mail\.\*': must be an exact kind, patterns are for handlers"):
        await bench.store.pause(kind="mail.*")
    assert await bench.store.paused() == []
    assert not await bench.store.resume(kind="mail.*")


async def test_rows_that_are_done_leave_and_the_others_stay_leased(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(3)]
    taken = await claim(bench)
    async with bench.store.transaction(taken.lease_id, rows) as work:
        assert (work.held, work.fenced) == (frozenset(rows), frozenset())
        for row in rows[:2]:
            async with work.savepoint():
                pass
            work.done(row)
    assert await bench.store.fail(taken.lease_id, [Failure(rows[2], "no", after=timedelta())]) == Settled(1)
    assert ids(await claim(bench)) == rows[2:]


async def test_c7_in_a_transaction_rows_of_a_lost_lease_are_fenced(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(2)]
    lost = await claim(bench)
    await bench.elapse(LEASE)
    assert ids(await claim(bench)) == rows[:1]
    async with bench.store.transaction(lost.lease_id, rows) as work:
        assert (work.held, work.fenced) == (frozenset(rows[1:]), frozenset(rows[:1]))
        with pytest.raises(ValueError, match=f"row id is {rows[0]}: must be one that this transaction holds"):
            work.done(*rows)
        work.done(rows[1])
    assert await bench.store.ack(lost.lease_id, rows) == Settled(0, fenced=2)


async def test_a_transaction_that_fails_takes_nothing(bench: Bench) -> None:
    row = (await bench.enqueue()).id
    taken = await claim(bench)

    async def handle() -> None:
        async with bench.store.transaction(taken.lease_id, [row]) as work:
            work.done(row)
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await handle()
    assert await bench.store.ack(taken.lease_id, [row]) == Settled(1)


async def test_rows_in_a_transaction_are_held_beyond_their_lease(bench: Bench) -> None:
    row = (await bench.enqueue(ordering_key="k")).id
    taken = await claim(bench, lease=timedelta(milliseconds=1))
    async with bench.store.transaction(taken.lease_id, [row]) as work:
        behind = (await bench.enqueue(ordering_key="k")).id
        assert ids(await claim(bench)) == []
        assert await bench.store.renew(taken.lease_id, [row], LEASE) == Settled(1)
        work.done(row)
    assert ids(await claim(bench)) == [behind]
