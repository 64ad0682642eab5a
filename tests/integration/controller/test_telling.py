"""What a keeper is told of schedules that stay healthy: nothing, until anything about them changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import redis as redis_py

from embedded.redis import Redis as RedisServer
from tests.integration.bullmq.conftest import desired
from tickkeeper.api.conditions import Reason, Status
from tickkeeper.api.status import TickScheduleStatus
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller.charge import Charge, Outcome, Unreachable
from tickkeeper.controller.keeper import Keeper
from tickkeeper.controller.memo import Held, Memo
from tickkeeper.controller.publish import Publisher
from tickkeeper.controller.references import References
from tickkeeper.controller.site import Site
from tickkeeper.controller.sites import Sites
from tickkeeper.controller.told import Told
from tickkeeper.controller.world import Options, World
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.desired import Desired


class Silent:
    """An API server's writer that takes everything."""

    def status(self, *_):
        pass

    def event(self, *_):
        pass

    def forget(self, *_):
        pass


class Room:
    """A keeper with one site; ``passes`` has what each pass reported."""

    def __init__(self, url: str) -> None:
        settings = RedisSettings(url=url)
        self.passes: list[dict[str, Outcome]] = []
        self.world = World(
            Options("c"), kube=None, references=References(None, settings), publisher=Publisher(Silent()), sites=None
        )
        self.keeper = Keeper(self.world)
        self.site = Site(settings, report=self._report, sweep_seconds=0.05, max_len_events=100)
        self.world.sites = Sites(lambda _: self.site)

    def _report(self, pairs) -> None:
        self.keeper.report(pairs)
        self.passes.append({charge.desired.place.scheduler_id: outcome for charge, outcome in pairs})

    def take(self, wanted: Desired) -> Memo:
        target = Target(self.site.name, wanted.place)
        held = Held(self.site, Charge(wanted), target)
        memo = Memo(wanted.owner.uid, Told.of(TickScheduleStatus()), held)
        self.world.memos[wanted.owner.key] = memo
        self.site.take(held.charge)
        return memo

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(15):
            while not condition():  # noqa: ASYNC110 - whatever it is that is waited for
                await asyncio.sleep(0.01)

    async def quiet(self) -> None:
        """Wait until three passes in a row had nothing to tell."""
        seen = len(self.passes)
        await self.until(lambda: len(self.passes) >= seen + 3 and not any(self.passes[-3:]))


@asynccontextmanager
async def room(url: str) -> AsyncIterator[Room]:
    made = Room(url)
    task = asyncio.create_task(made.site.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})


def other(name: str) -> Desired:
    base = desired()
    key = replace(base.owner, key=base.owner.key._replace(name=name), uid=f"uid-{name}")
    return replace(base, owner=key, place=base.place._replace(scheduler_id=f"drain.{name}"))


def says(memo: Memo, kind: str) -> tuple[Status, Reason]:
    found = memo.told.status.condition(kind)
    assert found is not None
    return found.status, found.reason


async def test_what_stays_healthy_is_told_once(redis_url: str) -> None:
    async with room(redis_url) as here:
        memo = here.take(desired())
        await here.quiet()
        assert says(memo, "Registered") == (Status.TRUE, Reason.REGISTERED)
        assert memo.held is not None
        assert memo.held.charge.in_place


async def test_an_outage_is_told_and_so_is_its_end(own_redis: RedisServer) -> None:
    async with room(own_redis.url) as here:
        memos = [here.take(desired()), here.take(other("second"))]
        await here.quiet()
        await asyncio.to_thread(own_redis.kill)
        await here.until(lambda: all(says(memo, "Registered")[1] == Reason.REDIS_UNREACHABLE for memo in memos))
        newcomer = here.take(other("newcomer"))
        await here.until(lambda: newcomer.last is not None)
        assert says(newcomer, "Registered") == (Status.FALSE, Reason.REDIS_UNREACHABLE)
        await asyncio.to_thread(own_redis.start)
        await here.until(lambda: all(says(memo, "Registered")[0] == Status.TRUE for memo in [*memos, newcomer]))
        await here.quiet()
        assert [memo.told.ready for memo in memos] == ["Ready"] * 2, "what the metric by state counts"


async def test_an_outage_that_lasts_is_told_again_but_not_with_every_try(own_redis: RedisServer) -> None:
    async with room(own_redis.url) as here:
        here.take(desired())
        await here.quiet()
        await asyncio.to_thread(own_redis.kill)
        await here.until(lambda: here.site.up is False)
        seen = len(here.passes)
        await here.until(lambda: sum(bool(told) for told in here.passes[seen:]) >= 2)
        told = [bool(each) for each in here.passes[seen:]]
        assert told.count(False) > told.count(True), "most tries have nothing new to say"
        assert all(isinstance(outcome, Unreachable) for each in here.passes[seen:] for outcome in each.values())


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_change_of_what_is_said_of_the_redis_reaches_every_condition(
    own_redis: RedisServer, policy: str
) -> None:
    async with room(own_redis.url) as here:
        memos = [here.take(desired()), here.take(other("second"))]
        await here.quiet()
        assert {says(memo, "RedisSafe") for memo in memos} == {(Status.TRUE, Reason.NO_EVICTION)}
        with own_redis.client() as raw:
            raw.config_set("maxmemory-policy", policy)
            await here.until(lambda: all(says(memo, "RedisSafe")[0] == Status.FALSE for memo in memos))
            await here.quiet()
            raw.config_set("maxmemory-policy", "noeviction")
            await here.until(lambda: all(says(memo, "RedisSafe")[0] == Status.TRUE for memo in memos))


async def test_a_heal_is_told_of_the_broken_one_alone(redis_url: str, redis: redis_py.Redis) -> None:
    async with room(redis_url) as here:
        memo, calm = here.take(desired()), here.take(other("calm"))
        await here.quiet()
        seen = len(here.passes)
        queue = memo.held.charge.queue
        redis.zrem(queue.key("repeat"), "drain.acme")
        await here.until(lambda: memo.told.status.heals == 1)
        await here.quiet()
        told = [each for each in here.passes[seen:] if each]
        assert {where for each in told for where in each} == {"drain.acme"}
        assert calm.told.status.heals == 0
        assert memo.told.ready == "Ready"


async def test_an_edition_is_told_though_both_are_healthy(redis_url: str) -> None:
    async with room(redis_url) as here:
        memo = here.take(desired())
        await here.quiet()
        held = memo.held
        assert held is not None
        wanted = held.charge.desired
        held.charge.edit(replace(wanted, owner=replace(wanted.owner, generation=wanted.owner.generation + 1)))
        here.site.look_soon(held.charge)
        await here.until(lambda: memo.told.status.observed_generation == wanted.owner.generation + 1)


async def test_what_the_memory_lost_is_told_again(redis_url: str) -> None:
    async with room(redis_url) as here:
        memo = here.take(desired())
        await here.quiet()
        memo.told, memo.last = Told.of(TickScheduleStatus()), None
        memo.tell_again()
        await here.until(lambda: memo.last is not None)
        assert says(memo, "Registered") == (Status.TRUE, Reason.REGISTERED)


async def test_first_ticks_are_noticed_though_nothing_else_changes(redis_url: str, redis: redis_py.Redis) -> None:
    async with room(redis_url) as here:
        memo = here.take(desired())
        await here.quiet()
        assert says(memo, "Ticking") == (Status.UNKNOWN, Reason.AWAITING_FIRST_TICK)
        held = memo.held
        assert held is not None
        held.charge.watch = replace(held.charge.watch, baseline=(held.charge.watch.baseline or 0) - 1)
        await here.until(lambda: says(memo, "Ticking") == (Status.TRUE, Reason.TICKING))
