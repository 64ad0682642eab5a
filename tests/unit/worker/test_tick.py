"""Draining one tenant, on a fake outbox."""

import asyncio
from collections import Counter
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.unit.worker.fakes import FakeOutbox, eventually, row
from tickkeeper.api.tick import TickOptions
from tickkeeper.outbox.store import SchemaError, StoreUnavailable
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.worker import tick
from tickkeeper.worker.handlers import Kinds, Registry, as_handler
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.limits import Limits, budget_of, ended, limits_of
from tickkeeper.worker.outcome import Dead, Retry, Snooze
from tickkeeper.worker.report import Report
from tickkeeper.worker.stop import Stop
from tickkeeper.worker.tick import drain


def _registry(**handlers):
    return Registry(as_handler(call, Kinds.of(kind.replace("_", "."))) for kind, call in handlers.items())


async def _done(row):
    pass


def _new(number):
    return replace(row(number), attempts=0)


async def _drain(store, registry, **options):
    invoker = Invoker(default_timeout=30, cleanup_seconds=0.05)
    async with asyncio.timeout(20):
        return await drain(store, "acme", registry, invoker=invoker, **options)


async def test_an_empty_outbox_costs_one_claim():
    store = FakeOutbox()
    result = await _drain(store, _registry(mail_send=_done))
    assert (result.claimed, result.ended, result.oldest_age_seconds) == (0, "empty", None)
    assert store.calls == ["claim", "oldest"]


async def test_batches_until_empty_and_only_this_tenant():
    store = FakeOutbox(*(row(n) for n in range(25)), row(99, tenant_id="other"))
    result = await _drain(store, _registry(mail_send=_done), limits=Limits(batch_size=10, lanes=1))
    assert (result.claimed, result.done, result.ended) == (25, 25, "empty")
    assert store.calls.count("claim") == 4
    assert list(store.rows) == [99]


async def test_each_outcome_is_written_and_counted():
    def of(kind):
        return {
            "a": lambda row: None,
            "b": lambda row: Retry(7, "later"),
            "c": lambda row: Dead("never"),
            "d": lambda row: Snooze(datetime(2030, 1, 1, tzinfo=UTC)),
            "e": lambda row: 1 / 0,
        }[kind]

    store = FakeOutbox(
        *(row(n, kind=kind) for n, kind in enumerate("abcde")), row(9, kind="e", attempts=20, max_attempts=20)
    )
    metrics = WorkerMetrics(CollectorRegistry())
    result = await _drain(store, Registry(as_handler(of(k), Kinds.of(k)) for k in "abcde"), metrics=metrics)
    assert (result.claimed, result.done, result.retried, result.dead, result.snoozed) == (6, 1, 2, 2, 1)
    assert store.scheduled[1].after == timedelta(seconds=7)
    assert store.scheduled[3].until == datetime(2030, 1, 1, tzinfo=UTC)
    assert store.rows[3].attempts == 0
    assert store.errors[4] == "ZeroDivisionError: division by zero"
    assert store.dead == {2: "never", 9: "ZeroDivisionError: division by zero"}
    value = metrics.registry.get_sample_value
    assert value("tickkeeper_rows_total", {"kind": "a", "outcome": "done"}) == 1
    assert value("tickkeeper_rows_total", {"kind": "e", "outcome": "retried"}) == 1
    assert value("tickkeeper_rows_total", {"kind": "e", "outcome": "dead"}) == 1
    assert value("tickkeeper_handler_duration_seconds_count", {"kind": "e"}) == 2


async def test_rows_without_a_handler_are_not_claimed_and_reported():
    store = FakeOutbox(row(1), row(2, kind="unknown"), row(3, kind="unknown"))
    result = await _drain(store, _registry(mail_send=_done))
    assert (result.claimed, result.unsupported, result.ended) == (1, 2, "empty")
    assert result.oldest_age_seconds == 1.5
    assert store.rows[2].attempts == 0


async def test_kinds_without_a_handler_are_named_once_a_process():
    store = FakeOutbox(row(1), *(row(n, kind=f"unknown.{n:02}") for n in range(2, 25)))
    registry = _registry(mail_send=_done)
    with capture_logs() as logs:
        await _drain(store, registry)
        store.rows[99] = row(99, kind="late")
        await _drain(store, registry)
        await _drain(store, registry, limits=Limits(wanted=Kinds.of("other")))
    told = [each for each in logs if "without a handler" in each["event"]]
    assert [each["log_level"] for each in told] == ["warning", "warning"]
    assert (told[0]["kinds"][0], len(told[0]["kinds"]), told[0]["more"]) == ("unknown.02", 20, 3)
    assert (told[1]["kinds"], told[1]["more"]) == (["late"], 0)


async def test_a_kind_that_this_tick_leaves_to_others_is_not_told():
    store = FakeOutbox(row(1, kind="mail.a"))
    registry = Registry([as_handler(_done, Kinds.of("mail.*"))])
    with capture_logs() as logs:
        result = await _drain(store, registry, limits=Limits(wanted=Kinds.of("sms.*")))
    assert result.unsupported == 1
    assert logs == []


async def test_no_handlers_at_all_claims_nothing():
    store = FakeOutbox(row(1))
    result = await _drain(store, Registry())
    assert (result.claimed, result.unsupported) == (0, 1)
    assert "claim" not in store.calls


async def test_a_tick_that_goes_on_sees_kinds_that_are_new(monkeypatch):
    monkeypatch.setattr("tickkeeper.worker.tick._KINDS_EVERY", 0.0)
    store = FakeOutbox(row(1, kind="mail.a"))
    seen = []

    async def handler(got):
        seen.append(got.kind)
        if len(seen) == 1:
            for each in (row(2, kind="mail.b"), row(3, kind="mail.a")):
                store.rows[each.id] = each

    result = await _drain(store, Registry([as_handler(handler, Kinds.of("mail.*"))]))
    assert sorted(seen) == ["mail.a", "mail.a", "mail.b"]
    assert result.ended == "empty"


async def test_patterns_claim_the_exact_kinds_that_are_there():
    store = FakeOutbox(row(1, kind="mail.a"), row(2, kind="mail.b"), row(3, kind="sms.a"))
    registry = Registry([as_handler(_done, Kinds.of("mail.*"))])
    metrics = WorkerMetrics(CollectorRegistry())
    result = await _drain(store, registry, metrics=metrics)
    assert (result.done, result.unsupported) == (2, 1)
    assert store.calls.count("kinds") == 2  # one look to claim, one to say what is left
    assert metrics.registry.get_sample_value("tickkeeper_rows_total", {"kind": "mail.*", "outcome": "done"}) == 2


async def test_the_ticks_own_kinds_narrow_what_is_claimed():
    store = FakeOutbox(row(1, kind="mail.a"), row(2, kind="mail.b"))
    registry = Registry([as_handler(_done, Kinds.of("mail.*"))])
    result = await _drain(store, registry, limits=Limits(wanted=Kinds.of("mail.b", "sms.*")))
    assert store.acked == [2]
    assert result.unsupported == 1


async def test_handlers_run_at_once_up_to_the_bound():
    store = FakeOutbox(*(row(n) for n in range(20)))
    running, most = 0, 0

    async def handler(row):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    await _drain(store, _registry(mail_send=handler), limits=Limits(concurrency=4))
    assert most == 4


async def test_outcomes_are_written_while_slow_rows_still_run():
    release = asyncio.Event()
    store = FakeOutbox(row(1), row(2, kind="slow"))

    async def slow(row):
        await release.wait()

    task = asyncio.create_task(_drain(store, _registry(mail_send=_done, slow=slow)))
    await eventually(lambda: store.acked == [1])
    release.set()
    assert (await task).done == 2


async def test_a_batch_of_quick_rows_is_one_write():
    store = FakeOutbox(*(row(n) for n in range(100)))
    await _drain(store, _registry(mail_send=_done))
    assert store.calls.count("ack") == 1


async def test_a_fault_of_ours_costs_no_outcome_that_was_known(monkeypatch):
    """What handlers have done has happened: it is written, and only the row that met the fault waits for its lease."""
    store = FakeOutbox(*(row(n) for n in range(6)))

    def called(self, job, verdict, seconds):
        if job[1].id == 3:
            raise RuntimeError("a bug")

    monkeypatch.setattr(Report, "called", called)
    with pytest.raises(RuntimeError, match="a bug"):
        await _drain(store, _registry(mail_send=_done), limits=Limits(concurrency=1, lanes=1))
    assert store.acked == [0, 1, 2]
    assert store.released == []


async def test_the_budget_ends_claiming_not_handling():
    store = FakeOutbox(*(row(n) for n in range(30)))

    async def handler(row):
        await asyncio.sleep(0.02)

    result = await _drain(
        store, _registry(mail_send=handler), limits=Limits(batch_size=5, budget=timedelta(milliseconds=10), lanes=1)
    )
    assert (result.ended, result.claimed, result.done) == ("budget", 5, 5)


async def test_beyond_its_budget_it_goes_on_while_nobody_waits():
    store = FakeOutbox(*(row(n) for n in range(30)))
    limits = Limits(batch_size=5, budget=timedelta(microseconds=1), lanes=1)
    result = await _drain(store, _registry(mail_send=_done), limits=limits, goes_on=lambda: len(store.acked) < 15)
    assert (result.ended, result.done) == ("budget", 15)
    result = await _drain(store, _registry(mail_send=_done), limits=limits, goes_on=lambda: True)
    assert (result.ended, result.done) == ("empty", 15)


async def test_a_batch_that_takes_long_does_not_hold_up_what_is_due_meanwhile(monkeypatch):
    monkeypatch.setattr(tick, "_LOOK_BESIDES", 0.01)
    store, over = FakeOutbox(row(1)), asyncio.Event()

    async def handler(row):
        if row.id == 1:
            await over.wait()

    limits = Limits(budget=timedelta(milliseconds=1))
    draining = asyncio.create_task(_drain(store, _registry(mail_send=handler), limits=limits, goes_on=lambda: True))
    for number in (2, 3):
        store.rows[number] = _new(number)
        await eventually(lambda number=number: number in store.acked)
    assert not draining.done()
    over.set()
    assert (await draining).done == 3
    assert store.acked == [2, 3, 1]


async def test_beside_a_long_batch_nothing_is_claimed_beyond_the_budget(monkeypatch):
    monkeypatch.setattr(tick, "_LOOK_BESIDES", 0.01)
    store = FakeOutbox(row(1))

    async def handler(row):
        store.rows[2] = _new(2)
        await asyncio.sleep(0.05)

    result = await _drain(store, _registry(mail_send=handler), limits=Limits(budget=timedelta(milliseconds=1)))
    assert (result.ended, result.done) == ("budget", 1)


async def test_the_smallest_budget_is_good_for_one_batch():
    store = FakeOutbox(*(row(n) for n in range(30)))
    result = await _drain(
        store, _registry(mail_send=_done), limits=Limits(batch_size=5, budget=timedelta(microseconds=1))
    )
    assert (result.ended, result.claimed, result.done) == ("budget", 5, 5)


async def test_a_soft_stop_finishes_what_runs_and_hands_back_the_rest():
    store, stop = FakeOutbox(*(row(n) for n in range(10))), Stop()

    running, both = 0, asyncio.Event()

    async def handler(row):
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        await both.wait()
        stop.soft("shutdown")

    result = await _drain(store, _registry(mail_send=handler), stop=stop, limits=Limits(concurrency=2))
    assert (result.ended, result.claimed, result.done, result.released) == ("shutdown", 10, 2, 8)
    assert {each.attempts for each in store.rows.values()} == {0}
    assert not store.leases


async def test_d3_a_hard_stop_cuts_handlers_and_hands_every_row_back():
    store, stop = FakeOutbox(*(row(n) for n in range(10))), Stop()
    cleaned = []

    begun = []

    async def handler(row):
        begun.append(row.id)
        if len(begun) == 3:
            stop.hard("shutdown")
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(row.id)

    result = await _drain(store, _registry(mail_send=handler), stop=stop, limits=Limits(concurrency=3))
    assert (result.ended, result.done, result.released) == ("shutdown", 0, 10)
    assert sorted(store.released) == list(range(10))
    assert sorted(cleaned) == [0, 1, 2]  # the others had not begun


async def test_a_hard_stop_is_bounded_when_the_outbox_hangs():
    store, stop = FakeOutbox(row(1)), Stop()

    async def hang():
        await asyncio.Event().wait()

    store.before = lambda name: hang() if name == "release" else None

    async def handler(row):
        stop.hard("shutdown")
        await asyncio.Event().wait()

    with pytest.raises(StoreUnavailable, match="could not be written"):
        await _drain(store, _registry(mail_send=handler), stop=stop)


async def test_the_lease_is_renewed_by_one_write_a_batch():
    store = FakeOutbox(*(row(n) for n in range(5)))

    async def handler(row):
        await eventually(lambda: len(store.renewals) >= 2)

    result = await _drain(store, _registry(mail_send=handler), limits=Limits(lease=timedelta(milliseconds=150)))
    assert result.done == 5
    assert store.renewals[0] == (0, 1, 2, 3, 4)


async def test_handlers_are_cancelled_when_the_lease_cannot_be_renewed_in_time():
    store = FakeOutbox(row(1), row(2))
    cancelled = []

    def unavailable(name):
        if name == "renew":
            raise StoreUnavailable("away")

    store.before = unavailable

    async def handler(row):
        store.rows.pop(3, None)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(row.id)
            store.rows.clear()  # nothing is left for the next claim

    result = await _drain(store, _registry(mail_send=handler), limits=Limits(lease=timedelta(milliseconds=60)))
    assert sorted(cancelled) == [1, 2]
    assert (result.fenced, result.done, result.released) == (2, 0, 0)


async def test_handlers_are_cancelled_when_the_rows_are_no_longer_ours():
    store = FakeOutbox(row(1))

    async def handler(row):
        store.rows.clear()
        store.expire()
        await asyncio.Event().wait()

    result = await _drain(store, _registry(mail_send=handler), limits=Limits(lease=timedelta(milliseconds=30)))
    assert (result.fenced, result.released) == (1, 0)


async def test_a_late_outcome_is_fenced_and_no_success():
    store = FakeOutbox(row(1))

    async def handler(row):
        store.rows.clear()
        store.expire()

    metrics = WorkerMetrics(CollectorRegistry())
    result = await _drain(store, _registry(mail_send=handler), metrics=metrics)
    assert (result.claimed, result.done, result.fenced) == (1, 0, 1)
    assert metrics.registry.get_sample_value("tickkeeper_rows_fenced_total") == 1
    assert metrics.registry.get_sample_value("tickkeeper_rows_total", {"kind": "mail.send", "outcome": "done"}) is None


async def test_what_was_done_beside_a_fenced_row_is_counted():
    store = FakeOutbox(row(1), row(2), row(3))
    going, all_there = [], asyncio.Event()

    async def handler(got):
        going.append(got.id)
        if len(going) == 3:
            del store.rows[1], store.leases[1]
            all_there.set()
        await all_there.wait()

    metrics = WorkerMetrics(CollectorRegistry())
    result = await _drain(store, _registry(mail_send=handler), metrics=metrics)
    assert (result.claimed, result.done, result.fenced) == (3, 2, 1)
    assert metrics.registry.get_sample_value("tickkeeper_rows_fenced_total") == 1
    assert metrics.registry.get_sample_value("tickkeeper_rows_total", {"kind": "mail.send", "outcome": "done"}) == 2


@pytest.mark.parametrize("error", [StoreUnavailable("away"), TimeoutError()])
async def test_c16_an_ack_that_fails_is_sent_again_while_the_lease_holds(error):
    store = FakeOutbox(row(1))
    faults = [error, error]

    def cut(name):
        if name == "ack" and faults:
            raise faults.pop()

    store.before = cut
    result = await _drain(store, _registry(mail_send=_done))
    assert result.done == 1
    assert store.calls.count("ack") == 3


async def test_c16_an_ack_that_never_succeeds_fails_the_tick_not_the_worker():
    store = FakeOutbox(row(1))

    def cut(name):
        if name == "ack":
            raise StoreUnavailable("away")

    store.before = cut
    with pytest.raises(StoreUnavailable, match="away"):
        await _drain(store, _registry(mail_send=_done), limits=Limits(lease=timedelta(milliseconds=300)))
    assert store.leases  # comes back by itself when the lease ends


async def test_rows_that_come_alone_do_not_share_the_process():
    invoker = Invoker(default_timeout=30, cleanup_seconds=0.05)
    running, most, go = 0, 0, asyncio.Event()

    async def handler(row):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    first, second = FakeOutbox(row(1), alone=True), FakeOutbox(row(2), alone=True)
    registry = _registry(mail_send=handler)
    ticks = [asyncio.create_task(drain(store, "acme", registry, invoker=invoker)) for store in (first, second)]
    await eventually(lambda: second.released)
    assert second.rows[2].attempts == 0
    go.set()
    results = await asyncio.gather(*ticks)
    assert [result.done for result in results] == [1, 1]
    assert most == 1


class SlowToAnswer(FakeOutbox):
    """Its claims count attempts at once and answer when told to."""

    def __init__(self, *rows, **options):
        super().__init__(*rows, **options)
        self.answer = asyncio.Event()

    async def claim(self, tenant_id, **asked):
        claim = await super().claim(tenant_id, **asked)
        await self.answer.wait()
        return claim


async def test_c10_a_row_alone_begins_when_no_claim_is_under_way():
    # A claim under way may have counted the last attempt of a row: killed now, that row would die untried.
    invoker = Invoker(default_timeout=30, cleanup_seconds=0.05)
    first, second = FakeOutbox(row(1), alone=True), SlowToAnswer(row(2), alone=True)
    began = []

    async def handler(row):
        began.append((row.id, second.rows[2].attempts if 2 in second.rows else None))

    registry = _registry(mail_send=handler)
    slow = asyncio.create_task(drain(second, "acme", registry, invoker=invoker))
    await eventually(lambda: second.leases)
    quick = asyncio.create_task(drain(first, "acme", registry, invoker=invoker))
    await eventually(lambda: invoker.alone.taken)
    assert not began
    second.answer.set()
    await asyncio.gather(slow, quick)
    assert began == [(1, 0), (2, 1)]


async def test_c10_nothing_is_claimed_just_after_a_row_alone_began():
    invoker = Invoker(default_timeout=30, cleanup_seconds=0.05)
    first, second = FakeOutbox(row(1), alone=True), FakeOutbox(row(2))
    go = asyncio.Event()

    async def handler(row):
        if row.id == 1:
            await go.wait()

    registry = _registry(mail_send=handler)
    alone = asyncio.create_task(drain(first, "acme", registry, invoker=invoker))
    await eventually(lambda: invoker.alone.taken)
    other = asyncio.create_task(drain(second, "acme", registry, invoker=invoker))
    await asyncio.sleep(0.05)
    assert "claim" not in second.calls
    await other  # a slow row does not stop the others for long
    assert second.acked == [2]
    assert not alone.done()
    go.set()
    await alone


@pytest.mark.parametrize("error", [StoreUnavailable("away"), SchemaError("run: tickkeeper outbox migrate")])
async def test_a_claim_that_fails_fails_the_tick(error):
    store = FakeOutbox(row(1))

    def away(name):
        raise error

    store.before = away
    with pytest.raises(type(error)):
        await _drain(store, _registry(mail_send=_done))


async def test_an_age_that_cannot_be_read_costs_no_tick():
    store = FakeOutbox(row(1))

    def away(name):
        if name == "oldest":
            raise StoreUnavailable("away")

    store.before = away
    assert (await _drain(store, _registry(mail_send=_done))).done == 1


async def test_cancelling_a_drain_leaves_no_task_behind():
    store, started = FakeOutbox(row(1)), asyncio.Event()

    async def handler(row):
        started.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    task = asyncio.create_task(_drain(store, _registry(mail_send=handler)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


def test_the_result_is_camel_case_json():
    from tickkeeper.worker.tick import TickResult

    result = TickResult(tenant_id="acme", claimed=1).model_dump(mode="json", by_alias=True)
    assert {"tenantId", "claimed", "done", "retried", "dead", "snoozed", "fenced", "released", "unsupported"} <= set(
        result
    )
    assert {"oldestAgeSeconds", "durationMs", "ended", "skipped"} <= set(result)


@given(
    st.lists(st.sampled_from(["done", "raise", "retry", "dead", "cancel", "nonsense", "snooze"]), max_size=30),
    st.integers(1, 10),
    st.integers(1, 5),
)
def test_every_claimed_row_has_one_fate(fates, batch_size, concurrency):
    async def handler(row):
        await asyncio.sleep(0)
        match row.payload["fate"]:
            case "raise":
                raise ValueError
            case "retry":
                return Retry()
            case "dead":
                return Dead()
            case "cancel":
                raise asyncio.CancelledError
            case "nonsense":
                return 5
            case "snooze":
                raise Snooze(datetime.now(UTC))

    store = FakeOutbox(*(row(n, payload={"fate": fate}) for n, fate in enumerate(fates)))
    result = asyncio.run(
        _drain(store, _registry(mail_send=handler), limits=Limits(batch_size=batch_size, concurrency=concurrency))
    )
    want = Counter(fates)
    assert result.claimed == len(fates)
    assert result.done == want["done"]
    assert result.dead == want["dead"]
    assert result.snoozed == want["snooze"]
    assert result.retried == want["raise"] + want["retry"] + want["cancel"] + want["nonsense"]
    assert not store.leases


@pytest.mark.parametrize(
    ("budget_ms", "every_ms", "seconds"),
    [(50, 5000, 0.05), (None, 100, 1), (None, 5000, 5), (None, 86_400_000, 60), (None, None, 7)],
)
def test_the_budget_follows_from_the_interval(budget_ms, every_ms, seconds):
    assert budget_of(budget_ms, every_ms, timedelta(seconds=7)) == timedelta(seconds=seconds)


def test_the_ticks_options_win():
    tick = TickOptions(kinds=("a", "b.*"), lease_ms=2000, batch_size=3, time_budget_ms=40)
    limits = limits_of(tick, every_ms=100, defaults=Limits(concurrency=2))
    assert limits == Limits(Kinds.of("a", "b.*"), timedelta(seconds=2), 3, timedelta(milliseconds=40), 2, firm=True)


def test_kinds_that_are_no_pattern_are_refused():
    with pytest.raises(ValueError, match=r"tick\.kinds: kind 'a\*b'"):
        limits_of(TickOptions(kinds=("a*b",)), every_ms=None, defaults=Limits())


def test_a_stop_is_reported_before_anything_else():
    assert ended(stop_reason="shutdown", elapsed=99, budget=timedelta(1), empty=True) == "shutdown"
    assert ended(stop_reason=None, elapsed=99, budget=timedelta(seconds=1), empty=True) == "empty"
    assert ended(stop_reason=None, elapsed=1, budget=timedelta(seconds=1), empty=False) == "budget"
    assert ended(stop_reason=None, elapsed=0, budget=timedelta(seconds=1), empty=False) is None


class _Runs(FakeOutbox):
    """Gives the rest of a run back with a row of it that fails, as stores with ordering keys do."""

    async def fail(self, lease_id, failures):
        settled = await super().fail(lease_id, failures)
        keys = {self.rows[each.id].ordering_key for each in failures if each.id in self.rows} - {None}
        behind = [each.id for each in self.rows.values() if each.ordering_key in keys and each.id in self.leases]
        await super().release(lease_id, behind)
        return settled


async def test_a_run_is_handled_in_order_beside_the_others_and_stops_at_its_failure():
    keyed = [row(n, ordering_key=f"k{n % 2}", attempts=1) for n in range(8)]
    store, seen = _Runs(*sorted(keyed, key=lambda each: each.ordering_key), row(99)), []
    store.scheduled[99] = None

    async def handler(each):
        await asyncio.sleep(0.001)
        seen.append(each.id)
        if each.id == 3:
            store.scheduled.update({5: None, 7: None})  # the key waits with its head
            raise ValueError

    result = await _drain(store, _registry(mail_send=handler))
    assert [n for n in seen if n % 2 == 0] == [0, 2, 4, 6]
    assert [n for n in seen if n % 2] == [1, 3]
    assert (result.claimed, result.done, result.retried, result.released, result.fenced) == (8, 5, 1, 2, 0)
    assert sorted(store.released) == [5, 7]
    assert store.calls.count("release") == 1  # the store's own, with the failure


async def test_a_run_that_was_lost_is_not_gone_on_with():
    store, seen = FakeOutbox(*(row(n, ordering_key="k") for n in range(3))), []
    written = asyncio.Event()

    async def handler(each):
        seen.append(each.id)
        if each.id == 0:
            store.rows.clear()
            store.expire()
        else:
            await written.wait()

    async def lossy(lease_id, ids):
        settled = await FakeOutbox.ack(store, lease_id, ids)
        asyncio.get_running_loop().call_soon(written.set)
        return replace(settled, lost=tuple(ids))

    store.ack = lossy
    result = await _drain(store, _registry(mail_send=handler))
    assert seen == [0, 1]  # 1 was under way before anybody knew
    assert (result.claimed, result.fenced, result.done) == (3, 3, 0)


async def test_a_batch_handler_gets_a_list_and_fails_whole():
    store, lists = FakeOutbox(*(row(n) for n in range(6)), row(9, attempts=3)), []

    async def handler(rows):
        lists.append([each.id for each in rows])
        if 9 not in lists[-1]:
            raise ValueError("no")

    registry = Registry([as_handler(handler, Kinds.of("mail.send"), batch=True)])
    result = await _drain(store, registry)
    assert sorted(lists) == [[0, 1, 2, 3, 4, 5], [9]]
    assert (result.done, result.retried) == (1, 6)
    assert set(store.errors.values()) == {"ValueError: no"}


async def test_a_handlers_own_bound_holds_over_all_ticks_of_a_process_and_holds_up_nobody_else():
    invoker = Invoker(default_timeout=30, cleanup_seconds=0.05)
    running, most, others = 0, 0, []
    go = asyncio.Event()

    async def bounded(row):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    async def quick(row):
        others.append(row.id)

    registry = Registry(
        [
            as_handler(bounded, Kinds.of("slow"), concurrency=2),
            as_handler(quick, Kinds.of("mail.send")),
        ]
    )
    stores = [FakeOutbox(*(row(n, "slow") for n in range(20)), *(row(n) for n in range(20, 30))) for _ in range(3)]
    ticks = [asyncio.create_task(drain(store, "acme", registry, invoker=invoker)) for store in stores]
    await eventually(lambda: len(others) == 30 and running == 2)
    go.set()
    results = await asyncio.gather(*ticks)
    assert [result.done for result in results] == [30] * 3
    assert most == 2


async def test_a_kinds_own_time_out_is_its_own():
    store = FakeOutbox(row(1, "hasty"), row(2, "patient"))

    async def handler(row):
        await asyncio.sleep(0.05)

    registry = Registry(
        [as_handler(handler, Kinds.of("hasty"), timeout=0.005), as_handler(handler, Kinds.of("patient"), timeout=20)]
    )
    result = await _drain(store, registry)
    assert (result.done, result.retried) == (1, 1)
    assert store.acked == [2]


async def test_the_next_batch_is_claimed_while_one_is_handled_and_handlers_stay_bounded():
    store, go = FakeOutbox(*(row(n) for n in range(40))), asyncio.Event()
    running, most = 0, 0

    async def handler(row):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    task = asyncio.create_task(
        _drain(store, _registry(mail_send=handler), limits=Limits(batch_size=10, lanes=2, concurrency=4))
    )
    await eventually(lambda: len(store.leases) == 20 and running == 4)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(store.leases) == 20  # and no third one: what is held back waits in the store
    go.set()
    assert (await task).done == 40
    assert most == 4


async def test_one_lane_serves_where_there_is_no_full_batch():
    store = FakeOutbox(*(row(n) for n in range(9)))
    result = await _drain(store, _registry(mail_send=_done), limits=Limits(batch_size=10, lanes=4))
    assert result.done == 9
    assert store.calls.count("claim") == 2


async def test_a_lane_that_cannot_write_ends_the_tick_once_the_others_have_written():
    store, failing = FakeOutbox(*(row(n) for n in range(20))), []

    def before(name):
        if name == "ack" and not failing:
            failing.append(name)
            raise SchemaError("gone")

    store.before = before
    with pytest.raises(SchemaError, match="gone"):
        await _drain(store, _registry(mail_send=_done), limits=Limits(batch_size=10, lanes=2))
    assert len(store.acked) == 10


class _Poisoned(FakeOutbox):
    """Its row 0 comes alone, first."""

    async def claim(self, tenant_id, *, kinds, limit, lease):
        alone = 0 in self.rows and 0 not in self.leases
        claim = await super().claim(tenant_id, kinds=kinds, limit=1 if alone else limit, lease=lease)
        return replace(claim, alone=alone)


async def test_a_row_that_comes_alone_does_not_run_beside_another_lane():
    store, beside = _Poisoned(row(0), *(row(n) for n in range(1, 30))), []
    store.leases[0] = None

    async def handler(each):
        store.leases.pop(0, None) if each.id == 1 else None
        await asyncio.sleep(0.002)
        if each.id == 0:
            beside.append(len(store.leases))

    result = await _drain(store, _registry(mail_send=handler), limits=Limits(batch_size=10, lanes=2, concurrency=2))
    assert (result.done, result.fenced) == (30, 0)
    assert beside == [1]  # itself


async def test_a_drain_of_quick_handlers_leaves_the_event_loop_its_turns():
    store, turns = FakeOutbox(*(row(n) for n in range(3000))), 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def busy(row):
        for _ in range(200):
            pass

    task = asyncio.create_task(others())
    await _drain(store, _registry(mail_send=busy), limits=Limits(batch_size=3000, lanes=1))
    task.cancel()
    assert turns > 20


async def test_what_a_handler_sets_in_its_context_the_next_does_not_see():
    seen, variable = [], ContextVar("tenant", default=None)

    async def handler(row):
        seen.append(variable.get())
        variable.set(row.id)
        await asyncio.sleep(0)
        assert variable.get() == row.id

    result = await _drain(
        FakeOutbox(*(row(n) for n in range(5))), _registry(mail_send=handler), limits=Limits(concurrency=1)
    )
    assert result.done == 5
    assert seen == [None] * 5


async def test_d3_a_hard_stop_hands_back_the_batches_of_all_lanes():
    store, stop, running = FakeOutbox(*(row(n) for n in range(30))), Stop(), []

    async def handler(each):
        running.append(each.id)
        await asyncio.Event().wait()

    task = asyncio.create_task(
        _drain(store, _registry(mail_send=handler), stop=stop, limits=Limits(batch_size=10, lanes=2, concurrency=3))
    )
    await eventually(lambda: len(running) == 3 and len(store.leases) == 20)
    stop.hard("shutdown")
    result = await task
    assert (result.ended, result.released, result.fenced) == ("shutdown", 20, 0)
    assert not store.leases
    assert {each.attempts for each in store.rows.values()} == {0}
    assert len(running) == 3  # the lane that waited for seats has begun nothing


async def test_a_handler_with_its_own_bound_does_not_wait_for_the_ticks_seats():
    store, go, done = FakeOutbox(*(row(n) for n in range(10)), row(20, "own")), asyncio.Event(), []

    async def slow(row):
        await go.wait()

    async def own(row):
        done.append(row.id)

    registry = Registry([as_handler(slow, Kinds.of("mail.send")), as_handler(own, Kinds.of("own"), concurrency=1)])
    task = asyncio.create_task(_drain(store, registry, limits=Limits(concurrency=2)))
    await eventually(lambda: done)
    go.set()
    assert (await task).done == 11


async def test_the_last_lane_works_the_row_that_comes_alone_though_others_ended_before():
    """A lane that has ended counts no more: else each would make way for it, and nobody would work the row."""
    store, beside = _Poisoned(row(0), *(row(n) for n in range(1, 41))), []
    store.leases[0] = None
    slow = asyncio.Event()

    async def handler(each):
        if each.id == 1:
            await slow.wait()  # the first lane's batch
        if each.id == 25:
            store.leases.pop(0, None)  # the other lane claims it next, and makes way
        if each.id == 0:
            beside.append(len(store.leases))

    task = asyncio.create_task(
        _drain(store, _registry(mail_send=handler), limits=Limits(batch_size=10, lanes=2, concurrency=2))
    )
    await eventually(lambda: store.released == [0])
    slow.set()
    result = await task
    assert (result.done, result.ended, beside) == (41, "empty", [1])


async def test_a_second_lane_starts_again_after_one_has_ended():
    most, store = 0, FakeOutbox(*(row(n) for n in range(20)))

    async def handler(each):
        nonlocal most
        most = max(most, len(store.leases))
        if each.id == 0:
            await eventually(lambda: store.calls.count("claim") >= 3)  # the other lane has found nothing, and ended
            for n in range(100, 140):
                store.rows[n] = row(n, attempts=0)
        await asyncio.sleep(0)

    result = await _drain(store, _registry(mail_send=handler), limits=Limits(batch_size=10, lanes=2, concurrency=2))
    assert result.done == 60
    assert most == 20


async def test_rows_that_a_claim_buries_are_told():
    store = FakeOutbox(row(1))
    claim = store.claim

    async def burying(tenant, **wanted):
        return replace(await claim(tenant, **wanted), buried=0 if store.acked else 2)

    store.claim = burying
    with capture_logs() as logs:
        result = await _drain(store, _registry(mail_send=_done), limits=Limits(lanes=1))
    assert (result.done, result.dead) == (1, 2)
    assert [(entry["tenant"], entry["rows"]) for entry in logs if "gave no answer" in entry["event"]] == [("acme", 2)]


@pytest.mark.parametrize("empties", [list.pop, lambda rows: rows.pop(0), list.clear])
async def test_a_batch_handlers_list_is_its_own(empties):
    async def handler(rows):
        while rows:
            empties(rows)

    store = FakeOutbox(*(row(n) for n in range(5)))
    registry = Registry([as_handler(handler, Kinds.of("mail.send"), batch=True)])
    result = await _drain(store, registry, metrics=WorkerMetrics(CollectorRegistry()))
    assert (result.done, result.released, store.acked) == (5, 0, [0, 1, 2, 3, 4])
