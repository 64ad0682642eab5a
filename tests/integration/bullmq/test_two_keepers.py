"""Two operators that both believe to lead, on one Redis: whatever they do to each other, it ends well.

Hypothesis interleaves what a keeper does in steps (know the resource, look, write one call at a time, die between two
of them) with the other's, with edits and a deletion, with faults, with another writer. Once both know the newest
resource, a pass of each is enough.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import redis as redis_py
from bullmq.job_scheduler import JobScheduler
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from embedded.redis import Redis as RedisServer
from tests.integration.bullmq.conftest import Bench, desired
from tickkeeper.bullmq.apply import Applier, ApplyError
from tickkeeper.bullmq.clients import RedisSettings, connect
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import Observer
from tickkeeper.schedules.checks import plan_removal
from tickkeeper.schedules.desired import Desired, Every, Owner, ResourceKey
from tickkeeper.schedules.history import History
from tickkeeper.schedules.plan import Plan, State, Step

T = TypeVar("T")

WHO = st.sampled_from(["one", "two"])
INTERVALS = st.sampled_from([60_000, 3_600_000, 86_400_000])
FAULTS = st.sampled_from(["flushall", "entry", "hash", "job hash", "job", "all of it", "other writer", "other stops"])


@dataclass(frozen=True)
class Resource:
    """A TickSchedule as the API server has it."""

    uid: int
    generation: int
    every: int
    deleted: bool = False

    @property
    def desired(self) -> Desired:
        owner = Owner("cluster-1", ResourceKey("apps", "acme"), f"uid-{self.uid}", self.generation)
        return desired(owner=owner, schedule=Every(self.every, self.every // 2), adopts_unstamped=True)


@dataclass
class Keeper:
    """One operator: what it knows, and the rest of the plan that it is carrying out."""

    bench: Bench
    knows: Resource
    history: History = field(default_factory=History)
    carrying: tuple[Desired, list[Plan]] | None = None
    #: seconds that its clock is ahead of the process': a keeper's patience is not waited for
    later: float = 0.0

    async def look(self) -> Plan:
        wanted = self.knows.desired
        sight = (await self.bench.look(wanted)).sights[wanted.place.scheduler_id]
        if self.knows.deleted:
            made = plan_removal(wanted, sight.observed)
        else:
            now = time.monotonic() + self.later
            made = await self.bench.plan(wanted, self.history.standing(now))
            self.history.look(made, now)
            if made.acts:
                self.history.note(made, now)
        self.carrying = (wanted, _one_by_one(made)) if made.acts else None
        return made

    async def write_one(self) -> None:
        """The next call of the plan."""
        if self.carrying is None:
            return
        wanted, plans = self.carrying
        # A refusal is told in a condition, and the rest of the plan is dropped; the next look finds what is there.
        try:
            await self.bench.applier.apply(wanted, plans.pop(0))
        except (ApplyError, redis_py.ResponseError):
            plans.clear()
        if not plans:
            self.carrying = None

    async def whole_pass(self) -> Plan:
        made = await self.look()
        while self.carrying is not None:
            await self.write_one()
        return made


def _one_by_one(made: Plan) -> list[Plan]:
    jobs = iter(made.jobs)
    return [Plan(made.state, (step,), (next(jobs),) if step is Step.REMOVE_JOB else ()) for step in made.steps]


class TwoKeepers(RuleBasedStateMachine):
    """``server`` is set by the test."""

    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.raw: redis_py.Redis = self.server.client()
        self.raw.flushall()
        self.resource = Resource(uid=1, generation=1, every=3_600_000)
        self.clients = [connect(RedisSettings(url=self.server.url)) for _ in range(2)]
        self.keepers = {
            name: Keeper(Bench(client, self.raw, Observer(client), Applier(client, max_len_events=1000)), self.resource)
            for name, client in zip(("one", "two"), self.clients, strict=True)
        }

    def teardown(self) -> None:
        try:
            self.settles()
        finally:
            for client in self.clients:
                self.run(client.aclose())
            self.runner.close()
            self.raw.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    # --- the keepers ---

    @rule(who=WHO)
    def hears_of_the_newest(self, who: str) -> None:
        self.keepers[who].knows = self.resource

    @rule(who=WHO)
    def looks(self, who: str) -> None:
        self.run(self.keepers[who].look())

    @rule(who=WHO)
    def writes_one_call(self, who: str) -> None:
        self.run(self.keepers[who].write_one())

    @rule(who=WHO)
    def passes(self, who: str) -> None:
        self.run(self.keepers[who].whole_pass())

    @rule(who=WHO)
    def dies_and_starts_anew(self, who: str) -> None:
        keeper = self.keepers[who]
        keeper.carrying, keeper.history, keeper.knows = None, History(), self.resource

    @rule()
    def both_pass_at_once(self) -> None:
        async def both() -> None:
            await asyncio.gather(*(keeper.whole_pass() for keeper in self.keepers.values()))

        self.run(both())

    # --- the resource ---

    @rule(every=INTERVALS)
    def edited(self, every: int) -> None:
        if not self.resource.deleted:
            self.resource = Resource(self.resource.uid, self.resource.generation + 1, every)

    @rule()
    def deleted(self) -> None:
        self.resource = Resource(self.resource.uid, self.resource.generation + 1, self.resource.every, deleted=True)

    @rule(every=INTERVALS)
    def made_anew(self, every: int) -> None:
        if self.resource.deleted:
            self.resource = Resource(self.resource.uid + 1, 1, every)

    # --- the world ---

    @rule(fault=FAULTS)
    def breaks(self, fault: str) -> None:
        bench, wanted = self.keepers["one"].bench, self.resource.desired
        id_ = wanted.place.scheduler_id
        score = bench.score(wanted)
        # One key at a time: of what was left by two faults in a row nothing may be left to know it by.
        whole = score is not None and self.raw.exists(bench.key(f"repeat:{id_}"))
        match fault:
            case "flushall":
                self.raw.flushall()
            case "other writer":
                with contextlib.suppress(TypeError):  # occupied slots: theirs to handle
                    self.run(self._driver().upsertJobScheduler(id_, {"every": 7_000_000, "offset": 5}, "drain"))
            case "other stops":
                self.run(self._driver().removeJobScheduler(id_))
            case _ if not whole:
                return
            case "entry":
                self.raw.zrem(bench.key("repeat"), id_)
            case "hash":
                self.raw.delete(bench.key(f"repeat:{id_}"))
            case "job hash":
                self.raw.delete(bench.job_key(wanted))
            case "job":
                self.raw.zrem(bench.key("delayed"), bench.job_id(wanted))
            case "all of it":
                self.raw.delete(bench.key("repeat"), bench.key("delayed"), bench.key(f"repeat:{id_}"))

    def _driver(self) -> JobScheduler:
        return self.keepers["one"].bench.applier._scheduler(QueueKey("bull", "ticks"))

    # --- what must hold in the end ---

    @rule()
    def settles(self) -> None:
        """Both have heard all, what they were at is over, and time has passed: a pass of each is enough."""
        for keeper in self.keepers.values():
            while keeper.carrying is not None:
                self.run(keeper.write_one())
            keeper.knows = self.resource
            keeper.later += 1000  # beyond any back-off
        for keeper in self.keepers.values():
            self.run(keeper.whole_pass())
        rest = State.ABSENT if self.resource.deleted else State.HEALTHY
        told = [self.run(keeper.look()) for keeper in self.keepers.values()]
        assert [made.state for made in told] == [rest, rest], told
        waiting = self._waiting()
        if self.resource.deleted:
            assert waiting == [], "nothing of it ticks any more"
            assert self.keepers["one"].bench.score(self.resource.desired) is None
            return
        wanted = self.resource.desired
        bench = self.keepers["one"].bench
        assert waiting == [bench.job_id(wanted)], "exactly one tick waits"
        record = self.raw.hgetall(bench.key(f"repeat:{wanted.place.scheduler_id}"))
        assert json.loads(record["data"]) == wanted.data
        assert record["every"] == str(self.resource.every)

    def _waiting(self) -> list[str]:
        key = self.keepers["one"].bench.key
        found = [*self.raw.zrange(key("delayed"), 0, -1), *self.raw.zrange(key("prioritized"), 0, -1)]
        found += [job for name in ("wait", "paused", "active") for job in self.raw.lrange(key(name), 0, -1)]
        return found


def test_two_keepers_that_both_lead_for_a_while_agree_in_the_end(redis_server: RedisServer) -> None:
    machine = type("TwoKeepers", (TwoKeepers,), {"server": redis_server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
