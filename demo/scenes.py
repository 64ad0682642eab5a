"""The scenes in their order: each does one thing, waits for what must follow, and says what it saw."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from demo.replica import stop_another_replica
from demo.stage import Seen, Stage
from demo.strip import span
from demo.watch import KEYS, Tick, leftovers, missed, on_its_slots

_HERE = Path(__file__).resolve().parent
_ROWS = 20


@dataclass(frozen=True, slots=True)
class Scene:
    """A label, what is done in words, and the function that does it."""

    label: str
    done: str
    play: Callable[[Stage], Seen]


def apply(stage: Stage) -> Seen:
    """The resource becomes a scheduler in Redis."""
    began = time.time()
    stage.kubectl("apply", "-f", str(_HERE / "acme.yaml"))
    registered = stage.back(stage.acme, since=began)
    stage.kubectl("wait", "tickschedule/acme", "--for=condition=Ready", "--timeout=30s")
    first = stage.ticks(stage.acme, 1, since=began)[0]
    text = f"registered as {KEYS}repeat:{stage.acme.id} {span(registered - began)} later, kubectl included; Ready=True"
    return Seen(text, tick=span(first.done - began))


def first_ticks(stage: Stage) -> Seen:
    """A worker takes its ticks."""
    began = time.time()
    ticks = stage.ticks(stage.acme, 3, since=began)
    apart = _apart(ticks)
    stage.check(min(apart) == stage.acme.every, f"the ticks are {apart} s apart")
    late = max(tick.done - tick.slot for tick in ticks)
    return Seen(f"3 ticks, {min(apart) * 1000:.0f} ms apart, each done at most {span(late)} after it was due")


def rows(stage: Stage) -> Seen:
    """Rows go in with a transaction, and out with the next tick."""
    stage.after_a_tick(stage.acme)
    began = time.time()
    ids = stage.parts.database.enqueue("acme", _ROWS)
    delivered = stage.delivered(ids, "acme")
    tick = stage.ticks(stage.acme, 1, since=began)[0]
    took = span(delivered.last - delivered.first)
    text = f"the next tick delivered {tick.result.get('done')} of them, in {took}"
    return Seen(text, tick=span(delivered.first - began))


def replica_stops(stage: Stage) -> Seen:
    """The original fault: one replica's ``stop()`` removes the scheduler of all the others."""
    before = stage.after_a_tick(stage.acme)
    began = time.time()
    with ThreadPoolExecutor(max_workers=1) as threads:
        replica = threads.submit(stop_another_replica, stage.parts.node, stage.parts.redis.url, stage.acme.id)
        stage.wait("the removal", lambda: stage.watch.lost(stage.acme.id, since=began) or replica.done())
        gone = stage.watch.lost(stage.acme.id, since=began)
        if gone is not None:
            seen = _healed(stage, before, gone, gone)
        else:  # back between two looks
            replica.result()  # it did remove it
            now = time.time()
            seen = _healed(stage, before, now, now)
            seen = replace(seen, back=f"< {span(stage.watch.longest_pause(since=began))}")
        return replace(seen, text=f"by {replica.result()}: {seen.text}")


def flushall(stage: Stage) -> Seen:
    """Everything in Redis is gone."""
    before = stage.after_a_tick(stage.acme)
    began = time.time()
    stage.redis.flushall()
    return _healed(stage, before, began, time.time())


def redis_restarts(stage: Stage) -> Seen:
    """A Redis without persistence dies and comes back empty."""
    before = stage.after_a_tick(stage.acme)
    began = time.time()
    stage.parts.redis.kill()
    ids = stage.parts.database.enqueue("acme")  # Postgres holds the truth meanwhile
    stage.kubectl("wait", "tickschedule/acme", "--for=condition=Ready=False", "--timeout=30s")
    stage.parts.redis.start()
    answered = stage.wait("Redis answering again", lambda: stage.watch.answered(since=began))
    healed = stage.back(stage.acme, since=answered)
    delivered = stage.delivered(ids, "acme").first
    away = f"away for {span(answered - began)}, Ready=False meanwhile; from its return:"
    return Seen(
        f"{away} {_missed(stage, before, healed)}; {_told(stage)}", span(healed - answered), span(delivered - answered)
    )


def operator_restarts(stage: Stage) -> Seen:
    """No operator: ticks go on. Then the schedule is changed and wiped, and nobody mends it until one is back."""
    stage.after_a_tick(stage.acme)
    stage.kill_operator()
    killed = time.time()
    patch = json.dumps({"spec": {"data": {"region": "north"}}})
    stage.kubectl("patch", "tickschedule", "acme", "--type=merge", "--patch", patch)
    went_on = len(stage.ticks(stage.acme, 2, since=killed))
    wiped = time.time()
    stage.redis.flushall()
    ids = stage.parts.database.enqueue("acme")
    stage.wait("a slot without a tick", lambda: time.time() > wiped + 1.5 * stage.acme.every)
    stage.check(not stage.watch.ticks_of(stage.acme.id, since=wiped + 0.1), "it ticked without a scheduler")
    began = time.time()
    stage.start_operator()
    healed = stage.back(stage.acme, since=began)
    delivered = stage.delivered(ids, "acme").first
    after = stage.ticks(stage.acme, 1, since=healed)[0]
    stage.check(after.data.get("region") == "north", f"the first tick carries the old data: {after.data}")
    text = f"{went_on} ticks without it, none after the wipe; from its restart: back with the new data"
    return Seen(f"{text}; {_told(stage)}", span(healed - began), span(delivered - began))


def second_tenant(stage: Stage) -> Seen:
    """The same job name on the same queue: two schedules, two intervals, no tick goes astray."""
    began = time.time()
    stage.kubectl("apply", "-f", str(_HERE / "globex.yaml"))
    registered = stage.back(stage.globex, since=began)
    since = time.time()
    ids = {schedule.name: stage.parts.database.enqueue(schedule.name) for schedule in (stage.acme, stage.globex)}
    theirs = stage.ticks(stage.globex, 3, since=since)
    ours = stage.watch.ticks_of(stage.acme.id, since=since)
    for schedule, ticks in ((stage.acme, ours), (stage.globex, theirs)):
        stage.delivered(ids[schedule.name], schedule.name)
        stage.check({tick.tenant for tick in ticks} == {schedule.name}, f"{schedule.name} got a tick of another tenant")
        apart = _apart(ticks)
        stage.check(min(apart) == schedule.every, f"{schedule.name} left its interval: {apart} s apart")
    counts = f"{len(theirs)} ticks 2 s apart; {stage.acme.id}: {len(ours)} ticks 1 s apart"
    return Seen(f"{stage.globex.id}: {counts}; each with its own rows", tick=span(theirs[0].done - registered))


def faster(stage: Stage) -> Seen:
    """The resource decides the interval, and kubectl changes it."""
    stage.after_a_tick(stage.acme)
    began = time.time()
    stage.kubectl("patch", "tickschedule", "acme", "--type=merge", "--patch", '{"spec":{"everyMs":500}}')
    changed = stage.wait(
        "everyMs changed in Redis", lambda: time.time() if stage.hash_field(stage.acme, "every") == "500" else None
    )
    ids = stage.parts.database.enqueue("acme")
    delivered = stage.delivered(ids, "acme").first
    stage.acme.every = 0.5
    apart = _apart(stage.ticks(stage.acme, 4, since=changed)[1:])
    stage.check(min(apart) == stage.acme.every, f"the ticks are {apart} s apart")
    text = f"in Redis {span(changed - began)} later, kubectl included; ticks are now {span(min(apart))} apart"
    return Seen(text, tick=span(delivered - began))


def bad_resource(stage: Stage) -> Seen:
    """Refused by the API server, before anything is written."""
    refused = stage.parts.cluster.try_kubectl("apply", "-f", str(_HERE / "bad.yaml"))
    stage.check(refused.returncode != 0, "the API server took it")
    for field in ("spec.everyMs", "spec.queueName"):
        stage.check(field in refused.stderr, f"the refusal does not name {field}: {refused.stderr}")
    stage.check(not stage.redis.exists("bull:ticks:fast:repeat"), "something of it is in Redis")
    faults = refused.stderr.partition("is invalid:")[2].split("* ")
    return Seen("; ".join(" ".join(fault.split()) for fault in faults if fault.strip()))


def deletion(stage: Stage) -> Seen:
    """Deleted: nothing of the schedules is left to tick."""
    began = time.time()
    stage.kubectl("delete", "tickschedule", "acme", "globex", "--timeout=30s")
    took = time.time() - began
    for schedule in (stage.acme, stage.globex):
        left = leftovers(stage.redis, schedule.id)
        stage.check(not left, f"of {schedule.id} is left: {', '.join(left)}")
    queue = {str(key).removeprefix(KEYS).split(":")[0] for key in stage.redis.scan_iter(f"{KEYS}*")}
    history = ", ".join(sorted(queue - {"repeat"}))
    return Seen(f"gone after {span(took)}: no entry, hash or pending job; the queue keeps {history}")


SCENES = (
    Scene("", "kubectl apply: acme ticks every 1000 ms", apply),
    Scene("", "a worker takes the ticks", first_ticks),
    Scene("", f"{_ROWS} rows enqueued, in one transaction", rows),
    Scene("(a)", "another replica stops: removeJobScheduler", replica_stops),
    Scene("(b)", "FLUSHALL", flushall),
    Scene("(c)", "kill -9 of Redis, which keeps nothing", redis_restarts),
    Scene("(d)", "kill -9 of the operator; then patch, FLUSHALL", operator_restarts),
    Scene("(e)", "a second tenant, the same job name", second_tenant),
    Scene("(f)", "kubectl patch: everyMs 1000 becomes 500", faster),
    Scene("(g)", "kubectl apply of a bad resource: refused", bad_resource),
    Scene("(h)", "kubectl delete of both", deletion),
)


def _healed(stage: Stage, before: Tick, fault: float, over: float) -> Seen:
    """After a fault that began at ``fault`` and was ``over`` at once: when the scheduler was back, when a row of that
    very moment was delivered, and what the operator says."""
    ids = stage.parts.database.enqueue("acme")
    healed = stage.back(stage.acme, since=over)
    delivered = stage.delivered(ids, "acme").first
    return Seen(f"{_missed(stage, before, healed)}; {_told(stage)}", span(healed - fault), span(delivered - fault))


def _missed(stage: Stage, before: Tick, healed: float) -> str:
    """How many ticks were missed from ``before`` to the first one after the heal; all of them were on their slots."""
    after = stage.ticks(stage.acme, 1, since=healed)[0]
    ticks = [before, *stage.watch.ticks_of(stage.acme.id, since=before.done), after]
    stage.check(on_its_slots(ticks, stage.acme.every), f"the ticks left their slots: {[tick.slot for tick in ticks]}")
    count = missed(ticks, stage.acme.every)
    return "no tick missed" if not count else f"{count} tick{'s' * (count > 1)} missed"


def _apart(ticks: Sequence[Tick]) -> list[float]:
    """Seconds between the due times of ticks that follow each other."""
    return [round(two.slot - one.slot, 3) for one, two in pairwise(ticks)]


def _told(stage: Stage) -> str:
    """What the resource's status says about the heal, once it does."""

    def counted() -> str | None:
        status = json.loads(stage.kubectl("get", "tickschedule", "acme", "-o", "json")).get("status", {})
        if status.get("heals", 0) <= stage.heals:
            return None
        stage.heals = status["heals"]
        return f"status.heals {stage.heals} ({status['lastHeal']['reason']})"

    return stage.wait("the heal in the resource's status", counted)
