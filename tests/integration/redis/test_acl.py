"""The Redis user of docs/redis.md: its commands and its keys are enough for all that the operator does."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import redis as redis_py

from embedded.redis import Redis as RedisServer
from tests.integration.bullmq.conftest import desired
from tests.integration.redis.conftest import Cluster, wait_for
from tests.integration.redis.test_forms import Log, healed, site
from tickkeeper.api.conditions import Reason, Status
from tickkeeper.bullmq import census
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.controller.charge import Charge, Found, Intent, Unreachable
from tickkeeper.controller.site import Site
from tickkeeper.schedules.desired import Cron, Every, Place
from tickkeeper.schedules.plan import State

DOCS = Path(__file__).parents[3] / "docs" / "redis.md"
HOURLY = desired(schedule=Every(3_600_000, 777))


def documented() -> list[str]:
    """The words of the ACL SETUSER of the docs."""
    text = re.search(r"ACL SETUSER tickkeeper-operator (.*?)\n\n", DOCS.read_text(), re.DOTALL)
    assert text is not None
    return shlex.split(text[1].replace("\\\n", " "))


@pytest.fixture
def admin(own_redis: RedisServer) -> Iterator[redis_py.Redis]:
    with own_redis.client() as client:
        yield client


def overdue(admin: redis_py.Redis, id_: str) -> None:
    """Make its next tick one that nobody has taken for 40 s."""
    score = int(admin.zscore("bull:ticks:repeat", id_))
    due = score - 40_000
    with admin.pipeline() as pipe:
        pipe.rename(f"bull:ticks:repeat:{id_}:{score}", f"bull:ticks:repeat:{id_}:{due}")
        pipe.zrem("bull:ticks:delayed", f"repeat:{id_}:{score}")
        pipe.zadd("bull:ticks:delayed", {f"repeat:{id_}:{due}": due * 4096})
        pipe.zadd("bull:ticks:repeat", {id_: due})
        pipe.execute()


async def whole_life(url: str, admin: redis_py.Redis) -> list[str]:
    """All that the operator does to a Redis, as that user; what it was refused."""
    log = Log()
    here = Site(RedisSettings(url=url), report=log.report, sweep_seconds=0.2, max_len_events=99)
    task = asyncio.create_task(here.run())
    key = "bull:ticks:"
    try:
        charge = Charge(HOURLY)
        here.take(charge)
        await log.until(healed)
        admin.zrem(f"{key}repeat", "drain.acme")
        await log.until(healed)
        admin.delete(f"{key}repeat:drain.acme")
        await log.until(lambda outcome: isinstance(outcome, Found) and outcome.plan.state is State.HASH_MISSING)
        admin.zrem(f"{key}delayed", *admin.zrange(f"{key}delayed", 0, -1))
        await log.until(lambda outcome: isinstance(outcome, Found) and outcome.plan.state is State.CHAIN_BROKEN)
        charge.desired = replace(HOURLY, schedule=Cron("30 2 * * *", "UTC"))
        here.look_soon(charge)
        await log.until(lambda outcome: isinstance(outcome, Found) and outcome.plan.state is State.DIFFERS)
        late = Charge(replace(HOURLY, schedule=Every(1000, 1), place=Place("bull", "ticks", "drain.late")))
        here.take(late)
        await log.until(healed)
        overdue(admin, "drain.late")
        await log.until(lambda outcome: isinstance(outcome, Found) and outcome.after.reason is Reason.NO_WORKERS)
        here.drop(late)
        assert [queue async for queue in census.queues(here.client, "bull")] == [QueueKey("bull", "ticks")]
        found = {pair[0] async for pair in census.stamps(here.client, QueueKey("bull", "ticks"))}
        assert found == {"drain.acme", "drain.late"}
        here.drop(charge)
        leaving = Charge(charge.claim, Intent.REMOVE)
        here.take(leaving)
        await log.until(lambda outcome: isinstance(outcome, Found) and outcome.after.state is State.ABSENT)
        assert here.feed.tracking
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return sorted({f"{entry['reason']} {entry['object']}" for entry in admin.acl_log()})


async def test_the_documented_user_may_do_what_the_operator_does(own_redis: RedisServer, admin: redis_py.Redis) -> None:
    admin.execute_command("ACL", "SETUSER", "tickkeeper-operator", *documented())
    url = f"redis://tickkeeper-operator:s3cret@127.0.0.1:{own_redis.port}/0"
    assert await whole_life(url, admin) == []


async def test_a_prefix_that_is_not_its_own_is_refused_and_told(own_redis: RedisServer, admin: redis_py.Redis) -> None:
    admin.execute_command("ACL", "SETUSER", "tickkeeper-operator", *documented())
    url = f"redis://tickkeeper-operator:s3cret@127.0.0.1:{own_redis.port}/0"
    async with site(url, replace(HOURLY, place=Place("theirs", "ticks", "drain.acme"))) as (_, log):
        outcome = await log.until(lambda outcome: isinstance(outcome, Unreachable))
    assert isinstance(outcome, Unreachable)
    assert outcome.message.startswith("the Redis user lacks a permission")
    assert admin.keys("*") == []


@pytest.mark.parametrize("word", ["+client|tracking", "+client|list", "+info"])
async def test_what_may_be_left_out_is_not_needed_to_heal(
    own_redis: RedisServer, admin: redis_py.Redis, word: str
) -> None:
    assert f"| `{word}` |" in DOCS.read_text()
    words = documented()
    words.remove(word)
    admin.execute_command("ACL", "SETUSER", "tickkeeper-operator", *words)
    url = f"redis://tickkeeper-operator:s3cret@127.0.0.1:{own_redis.port}/0"
    log = Log()
    here = Site(RedisSettings(url=url), report=log.report, sweep_seconds=0.2, max_len_events=99)
    task = asyncio.create_task(here.run())
    try:
        late = Charge(replace(HOURLY, schedule=Every(1000, 1)))
        here.take(late)
        await log.until(healed)
        overdue(admin, "drain.acme")
        reason = Reason.OVERDUE if word == "+client|list" else Reason.NO_WORKERS
        outcome = await log.until(lambda outcome: isinstance(outcome, Found) and outcome.after.reason is reason)
        assert isinstance(outcome, Found)
        assert (outcome.redis_safe.status is Status.UNKNOWN) == (word == "+info")
        admin.zrem("bull:ticks:repeat", "drain.acme")
        await log.until(healed)
        assert here.feed.tracking == (word != "+client|tracking")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_on_a_cluster_it_needs_what_the_docs_add(cluster: Cluster) -> None:
    more = re.search(r"On a Cluster add `(.*?)`", DOCS.read_text())
    assert more is not None
    wanted = replace(HOURLY, place=Place("{bull}", "ticks", "drain.acl"))
    words = ["~{bull}:*" if word == "~bull:*" else word for word in documented()]
    with ExitStack() as stack:
        nodes = [stack.enter_context(node.client()) for node in cluster.nodes]
        for node in nodes:
            node.execute_command("ACL", "SETUSER", "tickkeeper-operator", *words, *more[1].split())
            node.acl_log_reset()
        url = cluster.url.replace("//", "//tickkeeper-operator:s3cret@")
        async with site(url, wanted) as (made, log):
            await log.until(healed)
            await asyncio.to_thread(wait_for, lambda: made.feed.tracking, "the feed follows")
            with cluster.node_of("{bull}:ticks:repeat").client() as holder:
                holder.zrem("{bull}:ticks:repeat", "drain.acl")
            await log.until(healed)
        refused = {f"{entry['reason']} {entry['object']}" for node in nodes for entry in node.acl_log()}
        for node in nodes:
            node.execute_command("ACL", "DELUSER", "tickkeeper-operator")
    assert refused == set()
