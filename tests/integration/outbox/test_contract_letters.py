"""Duplicates, and the dead letters, of either outbox."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.outbox.benches import Bench, claim, ids
from tickkeeper.outbox import DuplicateRow, Enqueued, Failure, Replayed, postgres_dead

DAY = timedelta(days=1)


async def bury(bench: Bench, *, tenant: str = "acme") -> None:
    """Give up every row of a tenant that is due."""
    while (taken := await claim(bench, tenant=tenant)).rows:
        await bench.store.fail(taken.lease_id, [Failure(row.id, "given up", dead=True) for row in taken.rows])


async def test_keep_leaves_the_open_row(bench: Bench) -> None:
    first = await bench.enqueue(payload=1, dedup_key="k")
    assert first.outcome == "inserted"
    assert await bench.enqueue(payload=2, dedup_key="k") == Enqueued(first.id, "kept")
    assert (await bench.enqueue(payload=2, dedup_key="other")).outcome == "inserted"
    assert (await bench.enqueue(payload=2, tenant="other", dedup_key="k")).outcome == "inserted"
    assert [row.payload for row in (await claim(bench)).rows] == [1, 2]


async def test_replace_gives_the_open_row_new_content(bench: Bench) -> None:
    first = await bench.enqueue("a", 1, dedup_key="k", headers={"v": "1"})
    await bench.enqueue("a", "between")
    replaced = await bench.enqueue("b", 2, dedup_key="k", on_duplicate="replace", headers={"v": "2"}, max_attempts=3)
    assert replaced == Enqueued(first.id, "replaced")
    row, between = (await claim(bench)).rows
    assert (row.id, row.kind, row.payload, row.headers, row.max_attempts) == (first.id, "b", 2, {"v": "2"}, 3)
    assert between.payload == "between"


async def test_replace_makes_due_at_the_earlier_time_or_as_told(bench: Bench) -> None:
    late = await bench.enqueue(dedup_key="late", delay=DAY)
    await bench.enqueue(dedup_key="late", on_duplicate="replace")
    assert ids(await claim(bench)) == [late.id]
    early = await bench.enqueue(dedup_key="early", available_at=datetime(2020, 1, 1, tzinfo=UTC))
    await bench.enqueue(dedup_key="early", on_duplicate="replace")
    assert ids(await claim(bench)) == [early.id]
    await bench.enqueue(dedup_key="early")
    await bench.enqueue(dedup_key="early", on_duplicate="replace", delay=DAY)
    assert ids(await claim(bench)) == []


async def test_a_duplicate_may_be_an_error(bench: Bench) -> None:
    await bench.enqueue(dedup_key="k")
    with pytest.raises(DuplicateRow, match='dedup_key is "k": must be unique among the rows of tenant "acme"'):
        await bench.enqueue(dedup_key="k", on_duplicate="error")
    assert (await bench.enqueue(dedup_key="l", on_duplicate="error")).outcome == "inserted"


async def test_a_claim_frees_the_key_for_good(bench: Bench) -> None:
    old = await bench.enqueue(payload="old", dedup_key="k")
    taken = await claim(bench)
    new = await bench.enqueue(payload="new", dedup_key="k")
    assert new.outcome == "inserted"
    await bench.store.release(taken.lease_id, ids(taken))
    assert await bench.enqueue(dedup_key="k") == Enqueued(new.id, "kept")
    assert ids(await claim(bench)) == [old.id, new.id]


async def test_replay_keeps_the_id_and_gives_all_attempts_back(bench: Bench) -> None:
    row = await bench.enqueue("a", {"x": 1}, headers={"h": "v"}, max_attempts=2, dedup_key="k")
    for _ in range(2):
        taken = await claim(bench)
        await bench.store.fail(taken.lease_id, [Failure(row.id, "no", after=timedelta())])
    assert [each.id for each in await bench.store.dead_letters.latest()] == [row.id]
    assert await bench.store.dead_letters.replay(ids=[row.id, 999]) == Replayed(1)
    assert await bench.store.dead_letters.latest() == []
    assert await bench.enqueue(dedup_key="k") == Enqueued(row.id, "kept")
    (again,) = (await claim(bench)).rows
    assert (again.id, again.payload, again.headers, again.attempts) == (row.id, {"x": 1}, {"h": "v"}, 1)


async def test_replay_skips_and_reports_a_row_whose_key_lives(bench: Bench) -> None:
    dead = await bench.enqueue(dedup_key="k")
    await bury(bench)
    live = await bench.enqueue(dedup_key="k")
    assert await bench.store.dead_letters.replay() == Replayed(0, (dead.id,))
    await claim(bench)
    assert await bench.store.dead_letters.replay() == Replayed(0, (dead.id,))
    assert await bench.store.show(live.id) is not None
    assert [each.id for each in await bench.store.dead_letters.latest()] == [dead.id]


@pytest.mark.parametrize("portion", [1, 2, 500])
async def test_of_dead_rows_with_one_key_the_newest_is_replayed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(postgres_dead, "_BATCH", portion)
    rows = []
    for payload in range(3):
        rows.append((await bench.enqueue(payload=payload, dedup_key="k")).id)
        await bury(bench)
    assert await bench.store.dead_letters.replay() == Replayed(1, tuple(rows[:2]))
    assert [row.payload for row in (await claim(bench)).rows] == [2]


async def test_a_newer_row_of_its_key_that_is_not_chosen_does_not_keep_a_dead_row(bench: Bench) -> None:
    rows = []
    for kind in ("mail", "other", "mail"):
        rows.append((await bench.enqueue(kind, dedup_key="k")).id)
        await bury(bench)
    assert await bench.store.dead_letters.replay(kind="other") == Replayed(1)
    await claim(bench)
    assert [each.id for each in await bench.store.dead_letters.latest()] == [rows[2], rows[0]]
    assert await bench.store.dead_letters.replay(ids=rows[:1]) == Replayed(0, (rows[0],)), "the other is not done yet"


async def test_replayed_rows_are_delivered_in_the_order_of_their_ids(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(5)]
    await bury(bench)
    assert await bench.store.dead_letters.replay() == Replayed(5)
    assert ids(await claim(bench)) == rows


async def test_filters_of_replay_and_purge(bench: Bench) -> None:
    for tenant in ("acme", "other"):
        for kind in ("a", "b"):
            await bench.enqueue(kind, tenant=tenant)
        await bury(bench, tenant=tenant)
    letters = bench.store.dead_letters
    assert len(await letters.latest(tenant_id="acme")) == 2
    assert len(await letters.latest(kind="b")) == 2
    assert len(await letters.latest(limit=3)) == 3
    assert await letters.replay(tenant_id="acme", kind="a") == Replayed(1)
    assert await letters.purge(older_than=timedelta(), tenant_id="other", kind="b") == 1
    assert sorted((each.tenant_id, each.kind) for each in await letters.latest()) == [("acme", "b"), ("other", "a")]
    assert await letters.purge(older_than=timedelta(), ids=[999]) == 0
    assert await letters.purge(older_than=timedelta(days=999_999_999)) == 0
    assert await letters.purge(older_than=timedelta()) == 2
    with pytest.raises(ValueError, match="older_than is -1 day, 0:00:00: must not be negative"):
        await letters.purge(older_than=-DAY)


async def test_dead_letters_are_kept_for_the_time_told(bench: Bench) -> None:
    old = await bench.enqueue()
    await bury(bench)
    await bench.elapse(30 * DAY)
    young = await bench.enqueue()
    await bury(bench)
    assert [each.id for each in await bench.store.dead_letters.latest()] == [young.id, old.id]
    assert await bench.store.dead_letters.purge(older_than=30 * DAY) == 1
    assert [each.id for each in await bench.store.dead_letters.latest()] == [young.id]
