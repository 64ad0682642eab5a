"""Whatever happens to a scheduler, in whatever order: one plan, carried out, and nothing is left to do.

Hypothesis drives a real Redis: faults of every kind, edits of the resource, other writers.
"""

import asyncio
import contextlib
import json
import time
from typing import Any

import pytest
import redis as redis_py
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from embedded.redis import Redis as RedisServer
from tests.integration.bullmq.conftest import Bench, Cron, desired
from tickkeeper.bullmq.apply import Applier
from tickkeeper.bullmq.clients import RedisSettings, connect
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import Observer
from tickkeeper.schedules.desired import Desired, Every, Owner, ResourceKey
from tickkeeper.schedules.plan import State

EVERY = st.sampled_from([60_000, 3_600_000, 86_400_000])
SCHEDULES = st.one_of(
    st.builds(lambda every, part: Every(every, 1 + int((every - 1) * part)), EVERY, st.floats(0, 1)),
    st.sampled_from([Cron("30 2 * * *", "Europe/Stockholm"), Cron("0 0 1 1 *", "UTC")]),
)


class Life(RuleBasedStateMachine):
    """One scheduler's life; ``server`` is set by the test."""

    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.raw: redis_py.Redis = self.server.client()
        self.raw.flushall()
        self.client = connect(RedisSettings(url=self.server.url))
        self.bench = Bench(self.client, self.raw, Observer(self.client), Applier(self.client, max_len_events=1000))
        self.generation = 1
        self.wanted: Desired = desired(schedule=Every(3_600_000, 5), adopts_unstamped=True)

    def teardown(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()
        self.raw.close()

    def key(self, name: str) -> str:
        return self.bench.key(name)

    @property
    def scheduler_id(self) -> str:
        return self.wanted.place.scheduler_id

    def registered(self) -> bool:
        return self.bench.score(self.wanted) is not None

    # --- faults ---

    @rule()
    def flushall(self) -> None:
        self.raw.flushall()

    @rule()
    def entry_removed(self) -> None:
        self.raw.zrem(self.key("repeat"), self.scheduler_id)

    @rule()
    def hash_removed(self) -> None:
        self.raw.delete(self.key(f"repeat:{self.scheduler_id}"))

    @rule(field=st.sampled_from(["every", "offset", "pattern", "data", "opts", "name", "limit", "tz", "ic"]))
    def field_removed(self, field: str) -> None:
        self.raw.hdel(self.key(f"repeat:{self.scheduler_id}"), field)

    @rule(
        field=st.sampled_from(["every", "offset", "pattern", "data", "opts", "name", "limit", "tz"]),
        value=st.sampled_from(["1", "", "x", "{}", "[]", '{"tenantId":"evil"}', "1e+21"]),
    )
    def field_overwritten(self, field: str, value: str) -> None:
        self.raw.hset(self.key(f"repeat:{self.scheduler_id}"), field, value)

    @rule()
    def job_hash_removed(self) -> None:
        if self.registered():
            self.raw.delete(self.bench.job_key(self.wanted))

    @rule(name=st.sampled_from(["delayed", "prioritized"]))
    def job_taken_out_of_a_set(self, name: str) -> None:
        if self.registered():
            self.raw.zrem(self.key(name), self.bench.job_id(self.wanted))

    @rule(to=st.sampled_from(["wait", "active", "completed", "failed"]))
    def job_moved(self, to: str) -> None:
        if not self.registered() or not self.raw.zrem(self.key("delayed"), self.bench.job_id(self.wanted)):
            return
        if to in ("completed", "failed"):
            self.raw.zadd(self.key(to), {self.bench.job_id(self.wanted): time.time()})
        else:
            self.raw.lpush(self.key(to), self.bench.job_id(self.wanted))

    @rule(by=st.integers(-100_000_000, 100_000_000))
    def due_time_moved(self, by: int) -> None:
        score = self.bench.score(self.wanted)
        if score is not None:
            self.raw.zadd(self.key("repeat"), {self.scheduler_id: score + by})

    @rule()
    def finished_jobs_on_the_slots_ahead(self) -> None:
        if isinstance(self.wanted.schedule, Every):
            every = self.wanted.schedule.every_ms
            first = self.wanted.schedule.next_slot(int(time.time() * 1000))
            for slot in range(first, first + 40 * every, every):
                job = f"repeat:{self.scheduler_id}:{slot}"
                if not self.raw.exists(self.key(job)):
                    self.raw.hset(self.key(job), "rjk", self.scheduler_id)
                    self.raw.zadd(self.key("completed"), {job: slot})

    @rule(every=st.sampled_from([50, 60_000, 7_000_000]))
    def another_writer(self, every: int) -> None:
        queue = self.bench.applier._scheduler(QueueKey("bull", "ticks"))
        with contextlib.suppress(TypeError):  # occupied slots: theirs to handle
            self.runner.run(queue.upsertJobScheduler(self.scheduler_id, {"every": every}, "drain"))

    @rule()
    def another_replica_stops(self) -> None:
        queue = self.bench.applier._scheduler(QueueKey("bull", "ticks"))
        self.runner.run(queue.removeJobScheduler(self.scheduler_id))

    # --- edits ---

    @rule(schedule=SCHEDULES, data=st.dictionaries(st.sampled_from("ab"), st.text(max_size=3), max_size=2))
    def edited(self, schedule: Any, data: dict[str, str]) -> None:
        self.generation += 1
        owner = Owner("cluster-1", ResourceKey("apps", "acme"), "uid-1", self.generation)
        self.wanted = desired(owner=owner, schedule=schedule, data=data, adopts_unstamped=True)

    # --- the operator ---

    @invariant()
    def one_plan_mends_it(self) -> None:
        self.runner.run(self.bench.mend(self.wanted))
        record = self.raw.hgetall(self.key(f"repeat:{self.scheduler_id}"))
        assert json.loads(record["data"]) == self.wanted.data
        job = self.bench.job_id(self.wanted)
        places = [self.raw.zscore(self.key("delayed"), job)]
        places += [self.raw.lpos(self.key(name), job) for name in ("wait", "active")]
        assert [place for place in places if place is not None], "the next tick waits nowhere"

    @rule()
    def mending_twice_changes_nothing(self) -> None:
        before = {key: self.raw.dump(key) for key in self.raw.keys("*:repeat*")}
        assert self.runner.run(self.bench.plan(self.wanted)).state is State.HEALTHY
        assert before == {key: self.raw.dump(key) for key in self.raw.keys("*:repeat*")}

    @precondition(lambda self: self.registered())
    @rule()
    def removed_by_the_operator(self) -> None:
        self.runner.run(self.bench.remove(self.wanted))
        assert self.runner.run(self.bench.remove(self.wanted)).state is State.ABSENT


@pytest.mark.parametrize("steps", [12])
def test_one_plan_is_enough_whatever_happened(redis_server: RedisServer, steps: int) -> None:
    machine = type("Life", (Life,), {"server": redis_server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
