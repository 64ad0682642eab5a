"""What a process holds claimed at once is bounded, by rows and by bytes, over all of its ticks."""

import asyncio
import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.worker.fakes import FakeOutbox, eventually, row
from tickkeeper.worker.handlers import Kinds, Registry, as_handler
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.limits import Limits
from tickkeeper.worker.pressure import Load, Pressure, weigh
from tickkeeper.worker.stop import Stop
from tickkeeper.worker.tick import drain

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=40,
)


@given(_JSON)
def test_the_weight_is_of_the_order_of_the_payload(payload):
    written = len(json.dumps(payload, ensure_ascii=False))
    assert written / 8 <= weigh([row(payload=payload)]) <= 20 * written


@pytest.mark.parametrize("payload", ["x" * 5_000_000, ["abcdefgh"] * 500_000, {"a": [{"b": "c" * 100}] * 50_000}])
def test_large_payloads_are_weighed_quickly_and_about_right(payload):
    written = len(json.dumps(payload))
    assert written / 4 <= weigh([row(payload=payload)]) <= 4 * written


def _tenants(pressure, *, rows, payload=None, tenants=3):
    """Ticks of as many tenants in one process, whose handlers wait."""
    go, invoker = asyncio.Event(), Invoker(default_timeout=60, pressure=pressure)

    async def handler(_row):
        await go.wait()

    registry = Registry([as_handler(handler, Kinds.of("mail.send"))])
    stores = [
        FakeOutbox(*(row(n, tenant_id=f"t{each}", payload=payload) for n in range(rows))) for each in range(tenants)
    ]

    def start(number, **options):
        limits = Limits(batch_size=10, lanes=2, budget=options.pop("budget", timedelta(seconds=20)))
        return asyncio.create_task(
            drain(stores[number], f"t{number}", registry, invoker=invoker, limits=limits, **options)
        )

    return stores, start, go


async def test_rows_in_hand_are_bounded_over_all_ticks():
    pressure = Pressure(max_rows=25)
    stores, start, go = _tenants(pressure, rows=50)
    ticks = [start(number) for number in range(3)]
    await eventually(lambda: pressure.full)
    for _ in range(50):
        await asyncio.sleep(0)
    # Claims that were under way when the bound was reached come on top: one for each lane at most.
    assert 25 <= pressure.held.rows <= 60
    assert sum(len(store.leases) for store in stores) < 150
    go.set()
    assert [tick.done for tick in await asyncio.gather(*ticks)] == [50, 50, 50]
    assert pressure.held == Load()


async def test_bytes_in_hand_are_bounded_and_one_claim_always_goes():
    pressure = Pressure(max_bytes=1000)
    stores, start, go = _tenants(pressure, rows=30, payload={"text": "x" * 1000})
    first = start(0)
    await eventually(lambda: pressure.full)
    others = [start(number) for number in (1, 2)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(stores[0].leases) == 10
    assert not stores[1].leases
    assert not stores[2].leases
    go.set()
    assert [tick.done for tick in await asyncio.gather(first, *others)] == [30, 30, 30]


async def test_who_waits_for_room_ends_with_its_budget_or_its_stop():
    pressure, stop = Pressure(max_rows=1), Stop()
    _, start, go = _tenants(pressure, rows=10)
    first = start(0)
    await eventually(lambda: pressure.full)
    waits, told = start(1, budget=timedelta(milliseconds=50)), start(2, stop=stop)
    result = await waits
    assert (result.ended, result.claimed) == ("budget", 0)
    stop.soft("shutdown")
    result = await told
    assert (result.ended, result.claimed) == ("shutdown", 0)
    go.set()
    assert (await first).done == 10
