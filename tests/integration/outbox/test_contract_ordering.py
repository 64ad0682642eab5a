"""Strict order per key, of either outbox."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, Bench, MemoryBench, PostgresBench, claim, ids
from tickkeeper.outbox import DuplicateRow, Enqueued, Failure, PostgresOutbox, Replayed, Settled, Snooze

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["memory", "postgres"])
async def blocking(
    request: pytest.FixtureRequest, dsn: str, connection: "psycopg.AsyncConnection[Any]"
) -> AsyncIterator[Bench]:
    """Either outbox, in which a dead row blocks its key."""
    if request.param == "memory":
        yield MemoryBench(dead_heads="block")
        return
    async with PostgresOutbox(dsn, dead_heads="block") as store:
        yield PostgresBench(store, connection)


async def fill(bench: Bench, count: int, key: str | None = "k", **fields: Any) -> list[int]:
    return [(await bench.enqueue(ordering_key=key, **fields)).id for _ in range(count)]


async def test_a_run_comes_in_the_order_of_its_ids_and_nobody_else_gets_the_key(bench: Bench) -> None:
    rows = await fill(bench, 4)
    run = await claim(bench, limit=3)
    assert ids(run) == rows[:3]
    assert {row.ordering_key for row in run.rows} == {"k"}
    assert ids(await claim(bench)) == []
    assert await bench.store.ack(run.lease_id, rows[:3]) == Settled(3)
    assert ids(await claim(bench)) == rows[3:]


async def test_keys_are_of_a_tenant_and_of_all_its_kinds(bench: Bench) -> None:
    first = await bench.enqueue("a", ordering_key="k")
    second = await bench.enqueue("b", ordering_key="k")
    other = await bench.enqueue("b", ordering_key="k", tenant="other")
    assert ids(await claim(bench, kinds=["b"])) == []
    assert ids(await claim(bench, kinds=["b"], tenant="other")) == [other.id]
    both = await claim(bench, kinds=["a", "b"])
    assert ids(both) == [first.id, second.id]


async def test_a_run_ends_before_a_kind_that_was_not_asked_for(bench: Bench) -> None:
    rows = [(await bench.enqueue(kind, ordering_key="k")).id for kind in ("a", "a", "b", "a")]
    taken = await claim(bench, kinds=["a"])
    assert ids(taken) == rows[:2]
    await bench.store.ack(taken.lease_id, ids(taken))
    assert ids(await claim(bench, kinds=["a"])) == []
    assert ids(await claim(bench, kinds=["b"])) == rows[2:3]


async def test_keys_take_turns_with_rows_without_one(bench: Bench) -> None:
    """By due time: a long key does not keep the others waiting, nor the other way round."""
    hot, plain = [], []
    for _ in range(300):
        hot += await fill(bench, 1, "hot")
        plain += await fill(bench, 1, None)
    seen: list[int] = []
    while (taken := await claim(bench, limit=50)).rows:
        assert len(taken.rows) <= 50
        await bench.store.ack(taken.lease_id, ids(taken))
        seen += ids(taken)
        if len(seen) <= 300:
            assert 0.1 <= len(set(seen) & set(hot)) / len(seen) <= 0.9
    assert sorted(seen) == sorted(hot + plain)
    assert [row for row in seen if row in set(hot)] == hot


async def test_a_row_due_later_holds_up_its_key(bench: Bench) -> None:
    first = await bench.enqueue(ordering_key="k")
    later = await bench.enqueue(ordering_key="k", delay=MINUTE)
    behind = await bench.enqueue(ordering_key="k")
    taken = await claim(bench)
    assert ids(taken) == [first.id]
    await bench.store.ack(taken.lease_id, [first.id])
    assert ids(await claim(bench)) == []
    shown = await bench.store.show(behind.id)
    assert shown is not None
    assert (shown.state, shown.ordering_key) == ("behind", "k")
    assert shown.available_at is not None
    assert [(each.scheduled, each.behind) for each in await bench.store.stats()] == [(1, 1)]
    await bench.elapse(MINUTE)
    assert ids(await claim(bench)) == [later.id, behind.id]


@pytest.mark.parametrize("how", ["fail", "snooze", "release"])
async def test_a_row_that_goes_back_takes_the_rest_of_its_run_along(bench: Bench, how: str) -> None:
    rows = await fill(bench, 5)
    run = await claim(bench)
    await bench.store.ack(run.lease_id, rows[:1])
    if how == "fail":
        settled = await bench.store.fail(run.lease_id, [Failure(rows[1], "no", after=MINUTE)])
    elif how == "snooze":
        settled = await bench.store.snooze(run.lease_id, [Snooze(rows[1], bench.now() + MINUTE)])
    else:
        settled = await bench.store.release(run.lease_id, rows[1:2])
    assert settled == Settled(1)
    late = await bench.store.ack(run.lease_id, rows[2:])
    assert (late, late.lost) == (Settled(0, fenced=3), tuple(rows[2:]))
    if how != "release":
        assert ids(await claim(bench)) == []
        await bench.elapse(MINUTE)
    again = await claim(bench)
    assert ids(again) == rows[1:]
    attempts = [row.attempts for row in again.rows]
    assert attempts == [2 if how == "fail" else 1, 1, 1, 1]


async def test_the_failure_may_be_written_before_the_acks_of_the_rows_before_it(bench: Bench) -> None:
    rows = await fill(bench, 4)
    run = await claim(bench)
    await bench.store.fail(run.lease_id, [Failure(rows[2], "no", after=MINUTE)])
    assert ids(await claim(bench)) == []
    assert await bench.store.ack(run.lease_id, rows[:2]) == Settled(2)
    assert ids(await claim(bench)) == []
    await bench.elapse(MINUTE)
    assert ids(await claim(bench)) == rows[2:]


async def test_a_dead_row_is_skipped(bench: Bench) -> None:
    rows = await fill(bench, 3)
    run = await claim(bench)
    await bench.store.fail(run.lease_id, [Failure(rows[0], "no", dead=True)])
    assert ids(await claim(bench)) == rows[1:]


@pytest.mark.parametrize("remedy", ["replay", "purge"])
async def test_a_dead_row_blocks_where_it_is_told_to(blocking: Bench, remedy: str) -> None:
    store = blocking.store
    rows = await fill(blocking, 3)
    run = await claim(blocking)
    await store.ack(run.lease_id, rows[:1])
    await store.fail(run.lease_id, [Failure(rows[1], "no", dead=True)])
    more = await fill(blocking, 1)
    other = await fill(blocking, 1, "other")
    assert ids(await claim(blocking)) == other
    (dead,) = await store.dead_letters.latest()
    assert (dead.id, dead.ordering_key, dead.blocks) == (rows[1], "k", True)
    assert [(each.ready, each.behind, each.dead) for each in await store.stats()] == [(0, 2, 1)]
    if remedy == "replay":
        assert (await store.dead_letters.replay()).replayed == 1
        assert ids(await claim(blocking)) == [*rows[1:], *more]
    else:
        assert await store.dead_letters.purge(older_than=timedelta()) == 1
        assert ids(await claim(blocking)) == [*rows[2:], *more]


async def test_a_dead_row_whose_dedup_key_was_enqueued_anew_behind_it_can_be_replayed(blocking: Bench) -> None:
    dead = (await fill(blocking, 1, dedup_key="d"))[0]
    run = await claim(blocking)
    await blocking.store.fail(run.lease_id, [Failure(dead, "no", dead=True)])
    behind = await fill(blocking, 1, dedup_key="d") + await fill(blocking, 1)
    assert ids(await claim(blocking)) == []
    assert await blocking.store.dead_letters.replay() == Replayed(1)
    assert await blocking.enqueue(ordering_key="k", dedup_key="d") == Enqueued(behind[0], "kept")
    assert ids(await claim(blocking)) == [dead, *behind]


async def test_dead_rows_of_one_dedup_key_that_block_one_key_are_replayed_together(blocking: Bench) -> None:
    first = (await fill(blocking, 1, dedup_key="d"))[0]
    run = await claim(blocking)
    second = (await fill(blocking, 1, dedup_key="d"))[0]
    await blocking.store.release(run.lease_id, [first])
    run = await claim(blocking)
    assert ids(run) == [first, second]
    await blocking.store.fail(run.lease_id, [Failure(row, "no", dead=True) for row in (first, second)])
    assert await blocking.store.dead_letters.replay() == Replayed(2)
    assert await blocking.enqueue(ordering_key="k", dedup_key="d") == Enqueued(second, "kept")
    assert ids(await claim(blocking)) == [first, second]


async def test_a_dead_row_that_blocks_waits_for_a_twin_that_does_not_wait_for_it(blocking: Bench) -> None:
    dead = (await fill(blocking, 1, dedup_key="d"))[0]
    run = await claim(blocking)
    await blocking.store.fail(run.lease_id, [Failure(dead, "no", dead=True)])
    twin = (await fill(blocking, 1, "other", dedup_key="d"))[0]
    assert await blocking.store.dead_letters.replay() == Replayed(0, (dead,))
    run = await claim(blocking)
    assert ids(run) == [twin]
    await blocking.store.ack(run.lease_id, [twin])
    assert await blocking.store.dead_letters.replay() == Replayed(1)
    assert ids(await claim(blocking)) == [dead]


async def test_a_lost_last_attempt_blocks_too(blocking: Bench) -> None:
    rows = await fill(blocking, 1, max_attempts=1) + await fill(blocking, 1)
    await claim(blocking)
    await blocking.elapse(LEASE)
    taken = await claim(blocking)
    assert (ids(taken), taken.buried) == ([], 1)
    await blocking.store.dead_letters.replay()
    assert ids(await claim(blocking)) == rows[:1]


async def test_a_replayed_row_goes_before_those_that_wait(bench: Bench) -> None:
    rows = await fill(bench, 4)
    for row in rows[:2]:
        run = await claim(bench)
        await bench.store.fail(run.lease_id, [Failure(row, "no", dead=True)])
    assert (await bench.store.dead_letters.replay()).replayed == 2
    assert ids(await claim(bench)) == rows


async def test_a_replayed_row_waits_for_the_run_that_is_under_way(bench: Bench) -> None:
    rows = await fill(bench, 4)
    run = await claim(bench)
    await bench.store.fail(run.lease_id, [Failure(rows[0], "no", dead=True)])
    run = await claim(bench, limit=2)
    assert ids(run) == rows[1:3]
    await bench.store.dead_letters.replay()
    assert ids(await claim(bench)) == []
    await bench.store.ack(run.lease_id, rows[1:2])
    assert ids(await claim(bench)) == []
    await bench.store.ack(run.lease_id, rows[2:3])
    assert ids(await claim(bench)) == [rows[0], rows[3]]


async def test_c7_with_the_first_row_its_whole_run_is_lost(bench: Bench) -> None:
    rows = await fill(bench, 3)
    lost = await claim(bench)
    await bench.elapse(LEASE)
    again = await claim(bench)
    assert (ids(again), again.alone, again.rows[0].suspect) == (rows[:1], True, True)
    late = await bench.store.ack(lost.lease_id, rows)
    assert (late, late.lost) == (Settled(0, fenced=3), tuple(rows))
    assert await bench.store.renew(lost.lease_id, rows, LEASE) == Settled(0, fenced=3)
    await bench.store.ack(again.lease_id, rows[:1])
    for row in rows[1:]:
        alone = await claim(bench)
        assert (ids(alone), alone.alone) == ([row], True)
        await bench.store.ack(alone.lease_id, [row])


async def test_a_last_attempt_within_a_key_comes_alone_and_in_its_turn(bench: Bench) -> None:
    rows = await fill(bench, 2) + await fill(bench, 1, max_attempts=1) + await fill(bench, 1)
    for expected, alone in ((rows[:2], False), (rows[2:3], True), (rows[3:], False)):
        taken = await claim(bench)
        assert (ids(taken), taken.alone) == (expected, alone)
        await bench.store.ack(taken.lease_id, expected)


async def test_cancelling_closes_the_gap(bench: Bench) -> None:
    rows = await fill(bench, 5)
    assert (await bench.store.cancel("acme", ids=[rows[0], rows[2]])).cancelled == 2
    run = await claim(bench, limit=2)
    assert ids(run) == [rows[1], rows[3]]
    assert (await bench.store.cancel("acme", ids=rows)).held == 2
    await bench.store.ack(run.lease_id, ids(run))
    assert ids(await claim(bench)) == []


async def test_what_is_replaced_stays_in_its_key(bench: Bench) -> None:
    await fill(bench, 1)
    sent = await bench.enqueue(payload=1, dedup_key="d", ordering_key="k", delay=MINUTE)
    again = await bench.enqueue(payload=2, dedup_key="d", ordering_key="k", on_duplicate="replace")
    assert (again.id, again.outcome) == (sent.id, "replaced")
    with pytest.raises(DuplicateRow, match=r"ordering_key is .*: must be that of the row to replace"):
        await bench.enqueue(payload=2, dedup_key="d", ordering_key="l", on_duplicate="replace")
    assert (await bench.enqueue(payload=3, dedup_key="d", ordering_key="l")).outcome == "kept"
    run = await claim(bench)
    assert [(row.payload, row.available_at <= bench.now()) for row in run.rows] == [(None, True), (2, True)]


async def test_runs_are_bounded_by_the_bytes_of_their_payloads(small_bench: Bench) -> None:
    rows = [(await small_bench.enqueue(payload="x" * 40, ordering_key="k")).id for _ in range(6)]
    got: list[int] = []
    while (taken := await claim(small_bench)).rows:
        assert len(taken.rows) <= 3
        got += ids(taken)
        await small_bench.store.ack(taken.lease_id, ids(taken))
    assert got == rows


async def test_many_keys_of_one_row_fill_a_batch(bench: Bench) -> None:
    for number in range(400):
        await bench.enqueue(ordering_key=f"k{number}")
    sizes = []
    while (taken := await claim(bench, limit=50)).rows:
        sizes.append(len(taken.rows))
        await bench.store.ack(taken.lease_id, ids(taken))
    assert sum(sizes) == 400
    assert max(sizes) >= 40


@pytest.mark.parametrize("how", ["one by one", "at once", "fails"])
async def test_a_row_that_is_replayed_into_a_run_waits_for_its_end(bench: Bench, how: str) -> None:
    """Its id lies between those of the run, since the first row of that was replayed before."""
    rows = await fill(bench, 5)
    for row in rows[:2]:
        run = await claim(bench)
        await bench.store.fail(run.lease_id, [Failure(row, "no", dead=True)])
    await bench.store.dead_letters.replay(ids=rows[:1])
    run = await claim(bench, limit=3)
    assert ids(run) == [rows[0], *rows[2:4]]
    await bench.store.dead_letters.replay(ids=rows[1:2])
    assert ids(await claim(bench)) == []
    if how == "one by one":
        for row in ids(run):
            assert ids(await claim(bench)) == []
            assert await bench.store.ack(run.lease_id, [row]) == Settled(1)
    elif how == "at once":
        assert await bench.store.ack(run.lease_id, ids(run)) == Settled(3)
    else:
        assert await bench.store.ack(run.lease_id, rows[:1]) == Settled(1)
        assert ids(await claim(bench)) == []
        assert await bench.store.fail(run.lease_id, [Failure(rows[2], "no", after=MINUTE)]) == Settled(1)
    assert ids(await claim(bench)) == [rows[1], *([] if how == "fails" else rows[4:])]
