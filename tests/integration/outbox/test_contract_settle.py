"""What becomes of claimed rows, of either outbox."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.integration.outbox.benches import LEASE, Bench, claim, ids
from tickkeeper.outbox import Cancelled, Failure, Oldest, Settled, Snooze
from tickkeeper.outbox.store import READY_COUNTED

SECOND = timedelta(seconds=1)


async def test_ack_takes_rows_out(bench: Bench) -> None:
    for _ in range(3):
        await bench.enqueue()
    taken = await claim(bench)
    assert await bench.store.ack(taken.lease_id, ids(taken)[:2]) == Settled(2)
    assert await bench.store.show(ids(taken)[0]) is None
    assert await bench.store.show(ids(taken)[2]) is not None
    assert await bench.store.ack(taken.lease_id, []) == Settled(0)


async def test_c7_a_write_under_a_lost_lease_is_fenced(bench: Bench) -> None:
    row = await bench.enqueue()
    first = await claim(bench)
    await bench.elapse(LEASE)
    second = await claim(bench)
    assert ids(second) == [row.id]
    late = first.lease_id
    store = bench.store
    assert await store.ack(late, [row.id]) == Settled(0, fenced=1)
    assert await store.fail(late, [Failure(row.id, "late")]) == Settled(0, fenced=1)
    assert await store.fail(late, [Failure(row.id, "late", dead=True)]) == Settled(0, fenced=1)
    assert await store.snooze(late, [Snooze(row.id, datetime.now(UTC))]) == Settled(0, fenced=1)
    assert await store.release(late, [row.id]) == Settled(0, fenced=1)
    assert await store.renew(late, [row.id], LEASE) == Settled(0, fenced=1)
    assert await store.ack(second.lease_id, [row.id]) == Settled(1)


async def test_a_late_ack_does_not_delete_a_row_that_waits_for_its_retry(bench: Bench) -> None:
    row = await bench.enqueue()
    first = await claim(bench)
    await bench.store.fail(first.lease_id, [Failure(row.id, "no", after=SECOND)])
    assert await bench.store.ack(first.lease_id, [row.id]) == Settled(0, fenced=1)
    assert await bench.store.show(row.id) is not None


async def test_a_row_whose_lease_ran_out_is_still_ours_until_somebody_takes_it(bench: Bench) -> None:
    row = await bench.enqueue()
    taken = await claim(bench)
    await bench.elapse(2 * LEASE)
    assert await bench.store.renew(taken.lease_id, [row.id], LEASE) == Settled(1)
    assert ids(await claim(bench)) == []
    await bench.elapse(2 * LEASE)
    assert await bench.store.ack(taken.lease_id, [row.id]) == Settled(1)


async def test_some_fenced_some_not(bench: Bench) -> None:
    for _ in range(2):
        await bench.enqueue()
    one, other = await claim(bench, limit=1), await claim(bench, limit=1)
    both = [*ids(one), *ids(other)]
    assert await bench.store.ack(one.lease_id, [*both, both[0], 999]) == Settled(1, fenced=2)


async def test_a_failed_row_backs_off(bench: Bench) -> None:
    row = await bench.enqueue()
    for attempt in range(1, 6):
        taken = await claim(bench)
        assert taken.rows[0].attempts == attempt
        assert await bench.store.fail(taken.lease_id, [Failure(row.id, f"no {attempt}")]) == Settled(1)
        shown = await bench.store.show(row.id)
        assert shown is not None
        assert shown.available_at is not None
        assert (shown.state, shown.error, shown.attempts) == ("scheduled", f"no {attempt}", attempt)
        assert shown.lease_until is None
        longest = timedelta(seconds=2 ** (attempt - 1))
        assert ids(await claim(bench)) == []
        await bench.elapse(longest)
    assert ids(await claim(bench)) == [row.id]


async def test_a_failure_may_say_when_to_try_again(bench: Bench) -> None:
    row = await bench.enqueue()
    taken = await claim(bench)
    await bench.store.fail(taken.lease_id, [Failure(row.id, "later", after=timedelta(hours=1))])
    await bench.elapse(timedelta(minutes=59))
    assert ids(await claim(bench)) == []
    await bench.elapse(timedelta(minutes=1))
    taken = await claim(bench)
    assert ids(taken) == [row.id]
    await bench.store.fail(taken.lease_id, [Failure(row.id, "now", after=timedelta())])
    assert ids(await claim(bench)) == [row.id]


@pytest.mark.parametrize("after", [timedelta.max, timedelta.min])
async def test_nonsense_of_one_handler_does_not_strand_the_batch(bench: Bench, after: timedelta) -> None:
    for _ in range(2):
        await bench.enqueue()
    taken = await claim(bench)
    failures = [Failure(ids(taken)[0], "x\0y" + "z" * 10_000 + "\ud800", after=after), Failure(ids(taken)[1], "")]
    assert await bench.store.fail(taken.lease_id, failures) == Settled(2)
    shown = await bench.store.show(ids(taken)[0])
    assert shown is not None
    assert shown.error is not None
    assert len(shown.error) == 4_096
    assert shown.error.startswith("x\N{REPLACEMENT CHARACTER}y")


async def test_the_last_failure_and_a_verdict_bury(bench: Bench) -> None:
    last = await bench.enqueue(max_attempts=1)
    taken = await claim(bench)
    assert await bench.store.fail(taken.lease_id, [Failure(last.id, "no")]) == Settled(1, dead=1)
    verdict, retried = await bench.enqueue(), await bench.enqueue()
    taken = await claim(bench)
    failures = [Failure(verdict.id, "bad address", dead=True), Failure(retried.id, "no")]
    assert await bench.store.fail(taken.lease_id, failures) == Settled(2, dead=1)
    told = {row.id: (row.reason, row.error) for row in await bench.store.dead_letters.latest()}
    assert told == {last.id: ("exhausted", "no"), verdict.id: ("rejected", "bad address")}


async def test_snooze_spends_no_attempt(bench: Bench) -> None:
    row = await bench.enqueue(max_attempts=1)
    for _ in range(3):
        taken = await claim(bench)
        assert taken.rows[0].attempts == 1
        until = bench.now() + timedelta(hours=1)
        assert await bench.store.snooze(taken.lease_id, [Snooze(row.id, until)]) == Settled(1)
        await bench.elapse(timedelta(minutes=59))
        assert ids(await claim(bench)) == []
        await bench.elapse(timedelta(minutes=2))


@pytest.mark.parametrize("until", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
async def test_any_time_can_be_snoozed_to(bench: Bench, until: datetime) -> None:
    row = await bench.enqueue()
    taken = await claim(bench)
    assert await bench.store.snooze(taken.lease_id, [Snooze(row.id, until)]) == Settled(1)
    assert ids(await claim(bench)) == []
    await bench.elapse(timedelta(seconds=2))
    assert ids(await claim(bench)) == ([] if until.year > 2000 else [row.id])


@pytest.mark.parametrize("ago", [timedelta(0), timedelta(days=1)])
async def test_a_snooze_lasts_a_second_at_least_by_the_outbox_clock(bench: Bench, ago: timedelta) -> None:
    """Whatever the worker's clock says: due again at once, the row would be claimed as fast as the machine can."""
    row = await bench.enqueue()
    taken = await claim(bench)
    before = bench.now()
    await bench.store.snooze(taken.lease_id, [Snooze(row.id, before - ago)])
    shown = await bench.store.show(row.id)
    assert shown is not None
    assert shown.available_at is not None
    assert shown.available_at >= before + timedelta(seconds=0.9)


async def test_a_time_without_a_zone_is_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="until is 2026-01-01 00:00:00: must be a datetime with a time zone"):
        await bench.store.snooze(uuid4(), [Snooze(1, datetime(2026, 1, 1))])  # noqa: DTZ001


async def test_release_hands_back_at_once_and_counts_nothing(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(3)]
    for _ in range(25):
        taken = await claim(bench)
        assert (ids(taken), taken.rows[0].attempts) == (rows, 1)
        assert await bench.store.release(taken.lease_id, rows) == Settled(3)


async def test_a_released_suspect_stays_one(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(2)]
    await claim(bench)
    await bench.elapse(LEASE)
    alone = await claim(bench)
    await bench.store.release(alone.lease_id, ids(alone))
    again = await claim(bench)
    assert (ids(again), again.alone, again.rows[0].suspect, again.rows[0].attempts) == (rows[:1], True, True, 2)


async def test_renewal_holds_a_row_longer(bench: Bench) -> None:
    row = await bench.enqueue()
    taken = await claim(bench)
    for _ in range(4):
        await bench.elapse(LEASE * 2 / 3)
        assert await bench.store.renew(taken.lease_id, [row.id], LEASE) == Settled(1)
    assert ids(await claim(bench)) == []
    await bench.elapse(LEASE)
    assert ids(await claim(bench)) == [row.id]


async def test_a_renewal_that_comes_after_the_retry_moves_nothing(bench: Bench) -> None:
    row = await bench.enqueue()
    taken = await claim(bench)
    await bench.store.fail(taken.lease_id, [Failure(row.id, "no", after=SECOND)])
    assert await bench.store.renew(taken.lease_id, [row.id], LEASE) == Settled(0, fenced=1)
    await bench.elapse(SECOND)
    assert ids(await claim(bench)) == [row.id]


async def test_oldest_tells_how_far_behind_a_tenant_is(bench: Bench) -> None:
    assert await bench.store.oldest("acme") == Oldest()
    await bench.enqueue("a")
    await bench.elapse(timedelta(minutes=10))
    await bench.enqueue("b")
    await bench.enqueue("b", delay=timedelta(hours=1))
    await bench.enqueue("b", tenant="other")
    oldest = await bench.store.oldest("acme")
    assert oldest.ready == 2
    assert oldest.seconds is not None
    assert 600 <= oldest.seconds < 660
    await claim(bench)
    assert await bench.store.oldest("acme") == Oldest()


async def test_ready_rows_are_counted_up_to_a_bound(bench: Bench) -> None:
    for number in range(READY_COUNTED + 2):
        await bench.enqueue(f"k{number % 3}")
    assert (await bench.store.oldest("acme")).ready == READY_COUNTED


async def test_kinds_of_a_tenant(bench: Bench) -> None:
    for kind in ("b", "a", "c", "b"):
        await bench.enqueue(kind)
    await bench.enqueue("later", delay=SECOND)
    await bench.enqueue("other", tenant="other")
    assert sorted(await bench.store.kinds("acme")) == ["a", "b", "c", "later"]
    assert list(await bench.store.kinds("nobody")) == []


async def test_cancel_takes_waiting_rows_out(bench: Bench) -> None:
    held = await bench.enqueue(dedup_key="k")
    await claim(bench)
    waiting, other = await bench.enqueue(dedup_key="k"), await bench.enqueue(tenant="other", dedup_key="k")
    assert await bench.store.cancel("acme", dedup_key="k") == Cancelled(1, held=1)
    done = await bench.store.cancel("acme", ids=[held.id, waiting.id, other.id, 999])
    assert done == Cancelled(0, held=1)
    assert (done.held_ids, done.absent_ids) == ((held.id,), tuple(sorted([waiting.id, other.id, 999])))
    await bench.elapse(LEASE)
    assert await bench.store.cancel("acme", ids=[held.id]) == Cancelled(1)
    assert await bench.store.show(other.id) is not None
    with pytest.raises(ValueError, match="ids and dedup_key are both None"):
        await bench.store.cancel("acme")


async def test_stats_and_show(bench: Bench) -> None:
    await bench.enqueue("a")
    await claim(bench)
    await bench.enqueue("a", max_attempts=1)
    taken = await claim(bench)
    await bench.store.fail(taken.lease_id, [Failure(ids(taken)[0], "no")])
    await bench.enqueue("b", delay=timedelta(hours=1))
    await bench.enqueue("b", {"x": 1}, headers={"h": "v"})
    await bench.enqueue("z", tenant="other")
    told = [
        (each.tenant_id, each.kind, each.ready, each.leased, each.scheduled, each.dead)
        for each in await bench.store.stats()
    ]
    assert told == [("acme", "a", 0, 1, 0, 1), ("acme", "b", 1, 0, 1, 0), ("other", "z", 1, 0, 0, 0)]
    assert [each.tenant_id for each in await bench.store.stats("other")] == ["other"]
    leased = await bench.store.show(1)
    assert leased is not None
    assert (leased.state, leased.attempts, leased.lease_until is None) == ("leased", 1, False)
    ready = await bench.store.show(4)
    assert ready is not None
    assert (ready.state, ready.payload, ready.headers, ready.suspect) == ("ready", {"x": 1}, {"h": "v"}, False)
    assert await bench.store.show(999) is None
