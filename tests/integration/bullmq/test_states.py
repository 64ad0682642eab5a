"""Every state of a scheduler, made for real, is told apart, mended by one plan, and keeps its slot where it can."""

import base64
import json
import time
from dataclasses import replace

import pytest

from tests.integration.bullmq.conftest import OWNER, Bench, Cron, desired, slots
from tickkeeper.api.conditions import Reason
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.schedules.checks import Standing, plan
from tickkeeper.schedules.desired import Every, Owner, Place, ResourceKey
from tickkeeper.schedules.observed import JobAt
from tickkeeper.schedules.plan import State

# Half an hour from a slot on either side: no test here crosses one.
HOURLY = desired(schedule=Every(3_600_000, (int(time.time() * 1000) + 1_800_000) % 3_600_000))


def one_pending_job(bench: Bench, at: int) -> None:
    jobs = bench.raw.zrange(bench.key("delayed"), 0, -1)
    assert jobs == [f"repeat:drain.acme:{at}"]
    assert bench.raw.hget(bench.key(jobs[0]), "rjk") == "drain.acme"


async def test_missing_is_registered_at_its_slot_with_all_template_options(bench: Bench) -> None:
    made = await bench.mend(HOURLY)
    assert made.state is State.MISSING
    assert bench.score(HOURLY) == slots(HOURLY)
    record = bench.raw.hgetall(bench.key("repeat:drain.acme"))
    assert json.loads(record["data"]) == HOURLY.data
    assert json.loads(record["opts"]) == HOURLY.opts
    one_pending_job(bench, slots(HOURLY))


async def test_healthy_is_not_returned_once_its_digest_is_known(bench: Bench) -> None:
    await bench.mend(HOURLY)
    digest = (await bench.look(HOURLY)).sights["drain.acme"].digest
    assert (await bench.look(HOURLY, digest)).sights == {}
    bench.raw.hset(bench.key("repeat:drain.acme"), "name", "other")
    assert (await bench.look(HOURLY, digest)).sights["drain.acme"].observed.record is not None


@pytest.mark.parametrize("command", ["zrem", "flushall", "driver"])
async def test_p1_a_removed_scheduler_comes_back_at_the_same_slot(bench: Bench, command: str) -> None:
    await bench.mend(HOURLY)
    before = bench.score(HOURLY)
    match command:
        case "zrem":
            bench.raw.zrem(bench.key("repeat"), "drain.acme")
        case "flushall":
            bench.raw.flushall()
        case "driver":
            await bench.applier._scheduler(QueueKey("bull", "ticks")).removeJobScheduler("drain.acme")
    made = await bench.mend(HOURLY)
    assert made.state is State.MISSING
    assert bench.score(HOURLY) == before
    one_pending_job(bench, slots(HOURLY))


async def test_hash_missing(bench: Bench) -> None:
    await bench.mend(HOURLY)
    before = bench.score(HOURLY)
    bench.raw.delete(bench.key("repeat:drain.acme"))
    made = await bench.mend(HOURLY)
    assert made.state is State.HASH_MISSING
    assert bench.score(HOURLY) == before
    one_pending_job(bench, slots(HOURLY))


async def test_job_hash_missing_keeps_the_slot_and_leaves_no_ghost(bench: Bench) -> None:
    await bench.mend(HOURLY)
    before = bench.score(HOURLY)
    bench.raw.delete(bench.job_key(HOURLY))
    made = await bench.mend(HOURLY)
    assert made.state is State.JOB_HASH_MISSING
    assert bench.score(HOURLY) == before
    one_pending_job(bench, slots(HOURLY))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda b: b.raw.hset(b.key("repeat:drain.acme"), "every", "7000"), "every: 7000 -> 3600000"),
        (lambda b: b.raw.hset(b.key("repeat:drain.acme"), "name", "other"), "name: other -> drain"),
        (lambda b: b.raw.hset(b.key("repeat:drain.acme"), "limit", "3"), "limit: 3 -> (none)"),
        (lambda b: b.raw.hset(b.key("repeat:drain.acme"), "data", "{}"), "data"),
        (lambda b: b.raw.hset(b.key("repeat:drain.acme"), "opts", '{"attempts":9}'), "opts.attempts: 9 -> 1"),
        (lambda b: b.raw.hdel(b.key("repeat:drain.acme"), "opts"), "opts: (none)"),
        (lambda b: b.raw.hset(b.key("repeat:drain.acme"), "offset", "1"), "offset: 1 ->"),
    ],
)
async def test_differs_says_what_and_keeps_the_slot(bench: Bench, change, says: str) -> None:
    wanted = replace(HOURLY, adopts_unstamped=True)
    await bench.mend(wanted)
    before = bench.score(wanted)
    change(bench)
    made = await bench.mend(wanted)
    assert made.state is State.DIFFERS
    assert says in made.message
    assert bench.score(wanted) == before
    one_pending_job(bench, slots(wanted))


async def test_content_written_another_way_is_no_difference(bench: Bench) -> None:
    wanted = replace(HOURLY, data={**HOURLY.data, "city": "Malmö", "n": 1})
    await bench.mend(wanted)
    text = json.dumps(dict(reversed(list(wanted.data.items()))), ensure_ascii=False).replace('"n": 1', '"n": 1.0')
    bench.raw.hset(bench.key("repeat:drain.acme"), "data", text)
    assert (await bench.plan(wanted)).state is State.HEALTHY


async def test_a9_an_edit_is_in_the_very_next_tick(bench: Bench) -> None:
    await bench.mend(HOURLY)
    before = bench.score(HOURLY)
    owner = replace(OWNER, generation=2)
    edited = replace(desired(owner=owner, data={"version": "v2"}), schedule=HOURLY.schedule)
    made = await bench.mend(edited)
    assert made.state is State.OUTDATED
    assert bench.score(edited) == before
    assert json.loads(bench.raw.hget(bench.job_key(edited), "data"))["version"] == "v2"


async def test_a6_a_shorter_interval_takes_effect_at_once_and_leaves_nothing(bench: Bench) -> None:
    await bench.mend(HOURLY)
    edited = replace(HOURLY, schedule=Every(60_000, 500))
    await bench.mend(edited)
    score = bench.score(edited)
    assert score is not None
    assert score <= int(time.time() * 1000) + 60_000
    one_pending_job(bench, score)


async def test_a_new_offset_moves_the_phase(bench: Bench) -> None:
    await bench.mend(HOURLY)
    edited = replace(HOURLY, schedule=Every(3_600_000, 77))
    await bench.mend(edited)
    assert bench.score(edited) % 3_600_000 == 77
    one_pending_job(bench, bench.score(edited))


@pytest.mark.parametrize("ghost", [True, False])
async def test_a3_chain_broken_in_the_future_keeps_the_slot(bench: Bench, ghost: bool) -> None:
    await bench.mend(HOURLY)
    before = bench.score(HOURLY)
    bench.raw.zrem(bench.key("delayed"), bench.job_id(HOURLY))
    if not ghost:
        bench.raw.delete(bench.job_key(HOURLY))
    made = await bench.mend(HOURLY)
    assert made.state is State.CHAIN_BROKEN
    assert bench.score(HOURLY) == before
    one_pending_job(bench, slots(HOURLY))


async def past(bench: Bench, wanted) -> int:
    """Move a registered schedule one interval into the past, its job with it."""
    score = bench.score(wanted)
    late = score - 3_600_000
    bench.raw.rename(bench.job_key(wanted), bench.key(f"repeat:drain.acme:{late}"))
    bench.raw.zrem(bench.key("delayed"), f"repeat:drain.acme:{score}")
    bench.raw.zadd(bench.key("repeat"), {"drain.acme": late})
    return late


async def test_chain_broken_in_the_past_says_that_a_slot_was_skipped(bench: Bench) -> None:
    await bench.mend(HOURLY)
    late = await past(bench, HOURLY)
    made = await bench.mend(HOURLY)
    assert made.state is State.CHAIN_BROKEN
    assert "skipped" in made.message
    one_pending_job(bench, slots(HOURLY))
    assert not bench.raw.exists(bench.key(f"repeat:drain.acme:{late}"))


async def test_a_tick_that_finished_without_a_next_one_is_revived(bench: Bench) -> None:
    await bench.mend(HOURLY)
    late = await past(bench, HOURLY)
    bench.raw.zadd(bench.key("completed"), {f"repeat:drain.acme:{late}": late})
    made = await bench.mend(HOURLY)
    assert (made.state, made.jobs) == (State.CHAIN_BROKEN, ())
    assert bench.raw.exists(bench.key(f"repeat:drain.acme:{late}")), "history is not ours to remove"
    one_pending_job(bench, slots(HOURLY))


async def test_a_tick_whose_worker_died_is_revived_and_one_under_a_lock_is_not_touched(bench: Bench) -> None:
    await bench.mend(HOURLY)
    late = await past(bench, HOURLY)
    job = f"repeat:drain.acme:{late}"
    bench.raw.lpush(bench.key("active"), job)
    bench.raw.set(bench.key(f"{job}:lock"), "token")
    assert (await bench.plan(HOURLY)).reason is Reason.BUSY
    bench.raw.delete(bench.key(f"{job}:lock"))
    made = await bench.mend(HOURLY)
    assert made.state is State.ACTIVE_LOST
    one_pending_job(bench, slots(HOURLY))
    assert bench.raw.lrange(bench.key("active"), 0, -1) == [job], "the stalled check will bring it back"


@pytest.mark.parametrize("score", ["far", "inf"])
async def test_clock_ahead_is_brought_back(bench: Bench, score: str) -> None:
    await bench.mend(HOURLY)
    slot = bench.score(HOURLY)
    later = slot + 10 * 3_600_000 if score == "far" else float("inf")
    bench.raw.zrem(bench.key("delayed"), bench.job_id(HOURLY))
    bench.raw.delete(bench.job_key(HOURLY))
    bench.raw.zadd(bench.key("repeat"), {"drain.acme": later})
    if score == "far":
        job = f"repeat:drain.acme:{later}"
        bench.raw.hset(bench.key(job), mapping={"rjk": "drain.acme", "data": "{}"})
        bench.raw.zadd(bench.key("delayed"), {job: later * 4096})
    held = await bench.plan(HOURLY, Standing(own_clock_off=True))
    assert (held.acts, held.reason) == (False, Reason.CLOCK_SKEW), "not while our own clock is off, and never healthy"
    made = await bench.mend(HOURLY)
    assert made.state is State.CLOCK_AHEAD
    assert bench.score(HOURLY) == slot
    one_pending_job(bench, slot)


async def test_off_phase_is_brought_back_to_its_slots(bench: Bench) -> None:
    await bench.mend(HOURLY)
    slot = bench.score(HOURLY)
    bench.raw.rename(bench.job_key(HOURLY), bench.key(f"repeat:drain.acme:{slot - 9}"))
    bench.raw.delete(bench.key("delayed"))
    bench.raw.zadd(bench.key("delayed"), {f"repeat:drain.acme:{slot - 9}": (slot - 9) * 4096})
    bench.raw.zadd(bench.key("repeat"), {"drain.acme": slot - 9})
    made = await bench.mend(HOURLY)
    assert made.state is State.OFF_PHASE
    assert bench.score(HOURLY) == slot


@pytest.mark.parametrize("name", ["repeat", "repeat:drain.acme", "delayed", "wait", "meta", "active"])
async def test_a_key_of_another_type_is_reported_and_not_touched(bench: Bench, name: str) -> None:
    await bench.mend(HOURLY)
    bench.raw.delete(bench.key(name))
    bench.raw.set(bench.key(name), "theirs")
    made = await bench.plan(HOURLY)
    assert (made.state, made.acts) == (State.WRONG_TYPE, False)
    assert bench.key(name) in made.message


async def test_overdue_says_why(bench: Bench) -> None:
    await bench.mend(HOURLY)
    late = await past(bench, HOURLY)
    bench.raw.lpush(bench.key("wait"), f"repeat:drain.acme:{late}")
    sight = (await bench.look(HOURLY)).sights["drain.acme"].observed
    assert sight.job is JobAt.WAIT
    assert plan(HOURLY, sight).reason is Reason.OVERDUE
    assert plan(HOURLY, replace(sight, queue=replace(sight.queue, workers=0))).reason is Reason.NO_WORKERS
    assert plan(HOURLY, replace(sight, queue=replace(sight.queue, paused=True))).reason is Reason.QUEUE_PAUSED
    assert plan(HOURLY, replace(sight, queue=replace(sight.queue, rate_limited=True))).reason is Reason.RATE_LIMITED
    assert plan(HOURLY, replace(sight, queue=replace(sight.queue, maxed=True))).reason is Reason.BUSY
    assert plan(HOURLY, replace(sight, job=JobAt.BACKLOG)).reason is Reason.BACKLOG


async def test_queue_facts_are_read(bench: Bench) -> None:
    bench.raw.hset(bench.key("meta"), mapping={"paused": 1, "concurrency": 1, "max": 5, "opts.maxLenEvents": 77})
    bench.raw.lpush(bench.key("active"), "1")
    bench.raw.set(bench.key("limiter"), 5, px=60_000)
    look = await bench.look(HOURLY)
    facts = look.sights["drain.acme"].observed.queue
    assert (facts.paused, facts.maxed, facts.rate_limited, look.max_len_events) == (True, True, True, 77)


async def test_a_long_wait_list_is_called_a_backlog_not_a_broken_chain(bench: Bench) -> None:
    await bench.mend(HOURLY)
    late = await past(bench, HOURLY)
    bench.raw.rpush(bench.key("wait"), f"repeat:drain.acme:{late}", *(str(n) for n in range(1500)))
    assert (await bench.look(HOURLY)).sights["drain.acme"].observed.job is JobAt.BACKLOG


@pytest.mark.parametrize(
    ("owner", "adopts", "state"),
    [
        (Owner("cluster-2", ResourceKey("apps", "acme"), "x", 1), False, State.FOREIGN_OWNER),
        (Owner("cluster-2", ResourceKey("apps", "acme"), "x", 1), True, State.DIFFERS),
        (Owner("cluster-1", ResourceKey("apps", "other"), "x", 1), False, State.DIFFERS),
        (Owner("cluster-1", ResourceKey("apps", "acme"), "uid-0", 99), False, State.DIFFERS),
        (Owner("cluster-1", ResourceKey("apps", "acme"), "uid-1", 2), False, State.NEWER_GENERATION),
    ],
)
async def test_ownership(bench: Bench, owner: Owner, adopts: bool, state: State) -> None:
    theirs = desired(owner=owner)
    await bench.mend(theirs)
    assert (await bench.plan(desired(adopts_foreign=adopts))).state is state


async def test_an_applications_scheduler_is_adopted_only_when_named(bench: Bench) -> None:
    queue = bench.applier._scheduler(QueueKey("bull", "ticks"))
    await queue.upsertJobScheduler("drain.acme", {"every": 60_000}, "drain")
    assert (await bench.plan(desired())).state is State.FOREIGN_OWNER
    made = await bench.mend(desired(adopts_unstamped=True))
    assert made.state is State.DIFFERS


@pytest.mark.parametrize("broken", ["whole", "no entry", "no hash", "waiting", "hash only", "absent"])
async def test_removal_leaves_nothing_that_would_tick(bench: Bench, broken: str) -> None:
    if broken != "absent":
        await bench.mend(HOURLY)
    match broken:
        case "no entry":
            bench.raw.zrem(bench.key("repeat"), "drain.acme")
        case "no hash":
            bench.raw.delete(bench.key("repeat:drain.acme"))
        case "waiting":
            late = await past(bench, HOURLY)
            bench.raw.lpush(bench.key("wait"), f"repeat:drain.acme:{late}")
        case "hash only":
            bench.raw.zrem(bench.key("delayed"), bench.job_id(HOURLY))
            bench.raw.delete(bench.job_key(HOURLY))
            bench.raw.zrem(bench.key("repeat"), "drain.acme")
    await bench.remove(HOURLY)
    assert (await bench.remove(HOURLY)).state is State.ABSENT
    left = {key.removeprefix("bull:ticks:") for key in bench.raw.keys("*")}
    assert left <= {"meta", "id", "events", "marker"}


async def test_removal_leaves_others_alone(bench: Bench) -> None:
    await bench.mend(desired(owner=Owner("cluster-2", ResourceKey("apps", "acme"), "x", 1)))
    made = await bench.remove(desired())
    assert (made.state, made.acts) == (State.FOREIGN_OWNER, False)


async def test_a4_forty_occupied_slots_ahead_are_cleared(bench: Bench) -> None:
    wanted = desired(schedule=Every(60_000, 1))
    first = slots(wanted)
    for slot in range(first, first + 40 * 60_000, 60_000):
        bench.raw.hset(bench.key(f"repeat:drain.acme:{slot}"), "rjk", "drain.acme")
        bench.raw.zadd(bench.key("completed"), {f"repeat:drain.acme:{slot}": slot})
    await bench.applier.apply(wanted, await bench.plan(wanted))
    assert (await bench.plan(wanted)).state is State.HEALTHY
    assert bench.score(wanted) == first


async def test_cron_is_registered_at_its_next_fire_and_kept(bench: Bench) -> None:
    wanted = desired(schedule=Cron("30 2 * * *", "Europe/Stockholm"))
    await bench.mend(wanted)
    assert bench.raw.hmget(bench.key("repeat:drain.acme"), "pattern", "tz") == ["30 2 * * *", "Europe/Stockholm"]
    before = bench.score(wanted)
    digest = (await bench.look(wanted)).sights["drain.acme"].digest
    assert (await bench.look(wanted, digest)).sights == {}
    bench.raw.flushall()
    await bench.mend(wanted)
    assert bench.score(wanted) == before
    bench.raw.zrem(bench.key("delayed"), bench.job_id(wanted))
    assert (await bench.mend(wanted)).state is State.CHAIN_BROKEN
    assert bench.score(wanted) == before


async def test_two_tenants_with_one_job_name_have_a_scheduler_each(bench: Bench) -> None:
    acme = desired()
    other = replace(
        desired(owner=Owner("cluster-1", ResourceKey("apps", "beta"), "uid-2", 1), data={"tenantId": "beta"}),
        place=Place("bull", "ticks", "drain.beta"),
        schedule=Every(30_000, 7),
    )
    await bench.mend(acme)
    await bench.mend(other)
    assert bench.raw.zcard(bench.key("repeat")) == 2
    assert bench.raw.hget(bench.key("repeat:drain.acme"), "every") == "60000"
    assert (await bench.plan(acme)).state is State.HEALTHY


async def test_the_events_stream_is_capped_once_and_a_chosen_cap_is_kept(bench: Bench) -> None:
    queue = QueueKey("bull", "ticks")
    await bench.applier.cap_events(queue, (await bench.look(HOURLY)).max_len_events)
    assert bench.raw.hget(bench.key("meta"), "opts.maxLenEvents") == "1000"
    bench.raw.hset(bench.key("meta"), "opts.maxLenEvents", "555")
    await bench.applier.cap_events(queue, (await bench.look(HOURLY)).max_len_events)
    assert bench.raw.hget(bench.key("meta"), "opts.maxLenEvents") == "555"


def test_workers_of_both_languages_are_counted() -> None:
    from tickkeeper.bullmq.workers import count_named

    node = f"bull:{base64.b64encode(b'ticks').decode()}"
    names = [node, f"{node}:w:one", "bull:ticks", "bull:ticks:w:two", "bull:ticks2", "", "bull:other:w:ticks"]
    assert count_named(QueueKey("bull", "ticks"), [{"name": name} for name in names]) == 4


@pytest.mark.parametrize("field", ["data", "name", "opts", "every", "tz"])
@pytest.mark.parametrize("value", [b'{"tenantId":"\xff"}', b"[" * 100_000, b"\xf0\x28\x8c\x28", b"9" * 5000])
async def test_bytes_that_nobody_can_read_are_a_difference(bench: Bench, field: str, value: bytes) -> None:
    wanted = replace(HOURLY, adopts_unstamped=True)
    await bench.mend(wanted)
    bench.raw.hset(bench.key("repeat:drain.acme"), field, value)
    made = await bench.mend(wanted)
    assert made.state is State.DIFFERS


async def test_a_census_reads_past_what_nobody_can_read(bench: Bench) -> None:
    from tickkeeper.bullmq.census import queues, stamps

    await bench.mend(HOURLY)
    bench.raw.zadd(bench.key("repeat"), {b"\xff": 1, "odd": 2})
    bench.raw.hset(bench.key("repeat:odd"), "data", b"[" * 100_000)
    found = dict([pair async for pair in stamps(bench.client, QueueKey("bull", "ticks"))])
    assert {name for name, stamp in found.items() if stamp is not None} == {"drain.acme"}
    assert [queue async for queue in queues(bench.client, "bull")] == [QueueKey("bull", "ticks")]


async def test_a_newer_generation_is_waited_for_and_then_overwritten(bench: Bench) -> None:
    from tickkeeper.schedules.history import History

    await bench.mend(desired(owner=replace(OWNER, generation=99)))
    history = History()
    first = await bench.plan(desired(), history.standing(0.0))
    assert (first.state, first.acts) == (State.NEWER_GENERATION, False)
    history.look(first, 0.0)
    assert (await bench.plan(desired(), history.standing(14.0))).state is State.NEWER_GENERATION
    late = await bench.plan(desired(), history.standing(16.0))
    assert (late.state, late.acts) == (State.DIFFERS, True)
    history.look(late, 16.0)
    assert not history.standing(17.0).newest_is_ours


async def test_a_lost_job_is_seen_behind_a_long_wait_list_too(bench: Bench) -> None:
    await bench.mend(HOURLY)
    bench.raw.zrem(bench.key("delayed"), bench.job_id(HOURLY))
    bench.raw.rpush(bench.key("wait"), *(str(n) for n in range(2000)))
    made = await bench.mend(HOURLY)
    assert made.state is State.CHAIN_BROKEN
    one_pending_job(bench, slots(HOURLY))
