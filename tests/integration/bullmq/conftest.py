"""One schedule on a real Redis: looked at, planned and mended with the operator's own pieces."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import redis as redis_py
from redis.asyncio import Redis

from tickkeeper.bullmq.apply import Applier
from tickkeeper.bullmq.clients import RedisSettings, connect
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import Look, Observer, Wanted
from tickkeeper.schedules.checks import Standing, plan, plan_removal
from tickkeeper.schedules.desired import Cron, Desired, Every, Owner, Place, ResourceKey
from tickkeeper.schedules.plan import Plan, State

OWNER = Owner("cluster-1", ResourceKey("apps", "acme"), "uid-1", 1)


def desired(**changes: Any) -> Desired:
    """A schedule of every 60 s, in the queue ``ticks``."""
    owner = changes.pop("owner", OWNER)
    data = {
        "tenantId": "acme",
        "tickkeeper": {
            "cluster": owner.cluster,
            "namespace": owner.key.namespace,
            "name": owner.key.name,
            "uid": owner.uid,
            "generation": owner.generation,
        },
        **changes.pop("data", {}),
    }
    base = Desired(
        owner=owner,
        place=Place("bull", "ticks", "drain.acme"),
        schedule=Every(60_000, 12_345),
        job_name="drain",
        data=data,
        opts={"attempts": 1, "removeOnComplete": {"count": 100, "age": 86_400}},
    )
    return replace(base, **changes)


@dataclass
class Bench:
    """What a test needs of one Redis."""

    client: Redis
    raw: redis_py.Redis
    observer: Observer
    applier: Applier

    async def look(self, wanted: Desired, digest: str | None = None) -> Look:
        queue = QueueKey(wanted.place.prefix, wanted.place.queue)
        return await self.observer.look(queue, [Wanted(wanted, digest)], now=int(time.time() * 1000))

    async def plan(self, wanted: Desired, standing: Standing | None = None) -> Plan:
        sight = (await self.look(wanted)).sights[wanted.place.scheduler_id]
        return plan(wanted, sight.observed, standing)

    async def mend(self, wanted: Desired) -> Plan:
        """One look, one plan, carried out; the next look must find nothing to do."""
        made = await self.plan(wanted)
        await self.applier.apply(wanted, made)
        after = await self.plan(wanted)
        assert after.state is State.HEALTHY, after
        return made

    async def remove(self, wanted: Desired) -> Plan:
        sight = (await self.look(wanted)).sights[wanted.place.scheduler_id]
        made = plan_removal(wanted, sight.observed)
        await self.applier.apply(wanted, made)
        return made

    def score(self, wanted: Desired) -> int | None:
        score = self.raw.zscore(self.key("repeat"), wanted.place.scheduler_id)
        return None if score is None else int(score)

    def key(self, name: str) -> str:
        return f"bull:ticks:{name}"

    def job_key(self, wanted: Desired) -> str:
        return self.key(f"repeat:{wanted.place.scheduler_id}:{self.score(wanted)}")

    def job_id(self, wanted: Desired) -> str:
        return f"repeat:{wanted.place.scheduler_id}:{self.score(wanted)}"


@pytest.fixture
async def bench(redis_url: str, redis: redis_py.Redis) -> AsyncIterator[Bench]:
    client = connect(RedisSettings(url=redis_url))
    yield Bench(client, redis, Observer(client), Applier(client, max_len_events=1000))
    await client.aclose()


def slots(wanted: Desired) -> int:
    """The slot that a fresh registration takes now."""
    assert isinstance(wanted.schedule, Every)
    return wanted.schedule.next_slot(int(time.time() * 1000))


__all__ = ["OWNER", "Bench", "Cron", "desired", "slots"]
