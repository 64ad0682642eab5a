"""What a claim takes, of either outbox."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.integration.outbox.benches import LEASE, Bench, claim, ids
from tickkeeper.outbox import Failure

SECOND = timedelta(seconds=1)


async def test_rows_come_oldest_first_whatever_their_kind(bench: Bench) -> None:
    rows = [(await bench.enqueue(kind)).id for kind in ("b", "a", "b", "c", "a")]
    early = (await bench.enqueue("c", available_at=datetime(2020, 1, 1, tzinfo=UTC))).id
    assert ids(await claim(bench, limit=4)) == [early, *rows[:3]]
    assert ids(await claim(bench, limit=4)) == rows[3:]
    assert ids(await claim(bench)) == []


async def test_a_row_carries_what_was_enqueued(bench: Bench) -> None:
    payload = {"text": "å\n\\u0000", "list": [1, 2.5, None, True], "deep": {"a": {}}}
    sent = await bench.enqueue("mail", payload, headers={"trace": "ü"}, dedup_key="k", max_attempts=7)
    (row,) = (await claim(bench)).rows
    assert (row.id, row.tenant_id, row.kind, row.payload) == (sent.id, "acme", "mail", payload)
    assert (row.headers, row.dedup_key, row.ordering_key) == ({"trace": "ü"}, "k", None)
    assert (row.attempts, row.max_attempts, row.suspect) == (1, 7, False)
    assert timedelta() <= datetime.now(UTC) - row.created_at < timedelta(minutes=1)
    assert timedelta() <= datetime.now(UTC) - row.available_at < timedelta(minutes=1)


@pytest.mark.parametrize("payload", [None, 0, "", False, [], "text"])
async def test_any_json_value_is_a_payload(bench: Bench, payload: object) -> None:
    await bench.enqueue(payload=payload)
    (row,) = (await claim(bench)).rows
    assert row.payload == payload
    assert type(row.payload) is type(payload)


async def test_only_the_kinds_asked_for(bench: Bench) -> None:
    for kind in ("a", "b", "c", "a"):
        await bench.enqueue(kind)
    taken = await claim(bench, kinds=["a", "absent", "c", "a"])
    assert [row.kind for row in taken.rows] == ["a", "c", "a"]
    assert ids(await claim(bench, kinds=[])) == []
    assert ids(await claim(bench, kinds=["absent"])) == []


async def test_a_tenant_sees_its_own_rows_only(bench: Bench) -> None:
    mine, other = await bench.enqueue(tenant="acme"), await bench.enqueue(tenant="acme2")
    assert ids(await claim(bench, tenant="acme")) == [mine.id]
    assert ids(await claim(bench, tenant="acme2")) == [other.id]
    assert ids(await claim(bench, tenant="nobody")) == []


async def test_a_leased_row_is_not_claimed_again(bench: Bench) -> None:
    await bench.enqueue()
    first = await claim(bench)
    second = await claim(bench)
    assert (len(first.rows), len(second.rows), second.buried) == (1, 0, 0)
    assert first.lease_id != second.lease_id


async def test_a_row_of_the_future_waits(bench: Bench) -> None:
    later = await bench.enqueue(delay=timedelta(hours=1))
    assert ids(await claim(bench)) == []
    await bench.elapse(timedelta(hours=1))
    assert ids(await claim(bench)) == [later.id]


async def test_suspects_come_alone_and_say_so(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(4)]
    lost = await claim(bench, limit=3)
    assert (ids(lost), lost.alone) == (rows[:3], False)
    await bench.elapse(LEASE)
    for expected in rows[:3]:
        alone = await claim(bench)
        assert (ids(alone), alone.alone) == ([expected], True)
        assert (alone.rows[0].suspect, alone.rows[0].attempts) == (True, 2)
    rest = await claim(bench)
    assert (ids(rest), rest.alone, rest.rows[0].suspect) == (rows[3:], False, False)


async def test_older_plain_rows_go_before_a_suspect(bench: Bench) -> None:
    suspect = await bench.enqueue()
    await claim(bench, lease=SECOND)
    await bench.elapse(SECOND)
    older = [(await bench.enqueue(available_at=datetime(2020, 1, day, tzinfo=UTC))).id for day in (1, 2)]
    assert ids(await claim(bench)) == older
    assert ids(await claim(bench)) == [suspect.id]


async def test_a_suspect_whose_handler_ends_is_no_suspect_any_more(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(2)]
    await claim(bench)
    await bench.elapse(LEASE)
    for _ in rows:
        alone = await claim(bench)
        await bench.store.fail(alone.lease_id, [Failure(ids(alone)[0], "no", after=SECOND)])
    await bench.elapse(SECOND)
    again = await claim(bench)
    assert sorted(ids(again)) == rows
    assert not any(row.suspect for row in again.rows)


async def test_a_last_attempt_comes_alone(bench: Bench) -> None:
    plain = [(await bench.enqueue()).id for _ in range(2)]
    last = (await bench.enqueue(max_attempts=1)).id
    more = (await bench.enqueue()).id
    assert ids(await claim(bench)) == [*plain, more]
    alone = await claim(bench)
    assert (ids(alone), alone.alone, alone.rows[0].suspect) == ([last], True, False)


async def test_a_row_whose_last_attempt_gave_no_answer_is_buried_by_the_next_claim(bench: Bench) -> None:
    lost = await bench.enqueue(payload={"n": 1}, max_attempts=1, dedup_key="k", headers={"h": "1"})
    plain = await bench.enqueue()
    await claim(bench, limit=1)
    assert (await claim(bench)).buried == 0
    await bench.elapse(LEASE)
    taken = await claim(bench)
    assert (taken.buried, ids(taken)) == (1, [plain.id])
    (dead,) = await bench.store.dead_letters.latest()
    assert (dead.id, dead.reason, dead.attempts, dead.dedup_key) == (lost.id, "lost", 1, "k")
    assert dead.error is not None
    assert dead.error.startswith("attempt 1 of 1 gave no answer")
    shown = await bench.store.show(lost.id)
    assert shown is not None
    assert (shown.state, shown.payload, shown.headers) == ("dead", {"n": 1}, {"h": "1"})


async def test_what_went_wrong_before_is_kept_when_a_row_is_lost(bench: Bench) -> None:
    row = await bench.enqueue(max_attempts=2)
    first = await claim(bench)
    await bench.store.fail(first.lease_id, [Failure(row.id, "smtp said no", after=timedelta())])
    await claim(bench)
    await bench.elapse(LEASE)
    assert (await claim(bench)).buried == 1
    (dead,) = await bench.store.dead_letters.latest()
    assert dead.error is not None
    assert dead.error.endswith("before that: smtp said no")


async def test_a_claim_that_buries_goes_on_to_the_rows_behind(bench: Bench) -> None:
    for _ in range(3):
        await bench.enqueue(max_attempts=1)
        await claim(bench)
    await bench.elapse(LEASE)
    plain = await bench.enqueue()
    taken = await claim(bench)
    assert (taken.buried, ids(taken)) == (3, [plain.id])


async def test_a_batch_is_bounded_by_the_bytes_of_its_payloads(small_bench: Bench) -> None:
    sizes = [40, 40, 40, 500, 10, 90]
    rows = [(await small_bench.enqueue(payload="x" * size)).id for size in sizes]
    batches = []
    while (taken := await claim(small_bench)).rows:
        batches.append(ids(taken))
    assert batches == [rows[:3], rows[3:4], rows[4:]]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"limit": 0}, "limit is 0: must be 1 to 10000"),
        ({"limit": 10_001}, "limit is 10001: must be 1 to 10000"),
        ({"lease": timedelta()}, "lease is 0:00:00: must be longer than 0"),
        ({"lease": timedelta(days=2)}, "lease is 2 days, 0:00:00: must be"),
        ({"kinds": "mail"}, "kinds is 'mail': must be a sequence"),
    ],
)
async def test_bad_arguments_of_a_claim(bench: Bench, changes: dict[str, object], told: str) -> None:
    await bench.enqueue()
    with pytest.raises(ValueError, match=told):
        await claim(bench, **changes)


async def test_ids_of_another_kind_of_store_are_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="row id is UUID"):
        await bench.store.ack(uuid4(), [uuid4()])


async def test_a_drain_leaves_nothing_behind_the_place_where_it_goes_on(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(350)]
    seen = ids(await claim(bench, kinds=["mail"], limit=100))
    assert seen == rows[:100]
    rows.append((await bench.enqueue(available_at=datetime(2020, 1, 1, tzinfo=UTC))).id)
    while taken := ids(await claim(bench, kinds=["mail"], limit=100)):
        seen += taken
    assert sorted(seen) == rows


async def test_rows_handed_back_in_a_drain_come_again_at_once(bench: Bench) -> None:
    rows = [(await bench.enqueue()).id for _ in range(250)]
    first = await claim(bench, kinds=["mail"], limit=100)
    await bench.store.release(first.lease_id, ids(first))
    assert ids(await claim(bench, kinds=["mail"], limit=100)) == rows[:100]
