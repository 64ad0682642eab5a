"""Schedulers whose resource is gone are found by a walk over the queues; what is not ours is left alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import redis as redis_py

from tests.unit.controller.fakes import FakeWriter
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller.charge import Charge
from tickkeeper.controller.memo import Held, Memo
from tickkeeper.controller.orphans import OrphanHunt
from tickkeeper.controller.publish import Publisher
from tickkeeper.controller.references import References
from tickkeeper.controller.site import Site
from tickkeeper.controller.sites import Sites
from tickkeeper.controller.table import Entry
from tickkeeper.controller.told import Told
from tickkeeper.controller.world import Options, World
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.wanted import Retention, wanted

PREFIX = "orphans"


def body(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "apps", "uid": f"uid-{name}", "generation": 1},
        "spec": {"tenant": name, "jobName": "drain", "everyMs": 3_600_000, "prefix": PREFIX, **spec},
    }


@dataclass
class Yard:
    """A world with one real Redis, and the hunt in it."""

    world: World
    site: Site
    hunt: OrphanHunt
    raw: redis_py.Redis
    now: float = 0.0

    async def register(self, name: str, *, cluster: str = "c-1", known: bool = True, **spec: Any) -> Charge:
        """Register a schedule as the operator does; one that is not ``known`` has no resource any more."""
        entry = Entry.read(body(name, **spec))
        assert entry.spec is not None
        made = wanted(entry.meta, entry.spec, cluster=cluster, opts=Retention().opts(), adopts_unstamped=False)
        charge = Charge(made)
        self.site.take(charge)
        await until(lambda: self.raw.zscore(f"{PREFIX}:ticks:repeat", made.place.scheduler_id) is not None)
        if known:
            self.world.table.put(entry)
            target = Target(self.site.name, made.place)
            self.world.memos[entry.key] = Memo(entry.meta.uid, Told.of(entry.status), Held(self.site, charge, target))
        else:
            self.site.drop(charge)
        return charge

    async def walk(self, seconds: float = 0.0) -> set[str]:
        """Walk once, so many seconds later; what is registered once the removals are through."""
        self.now += seconds
        await self.hunt.walk()
        await until(lambda: not any(orphan.charge in self.site.charges for orphan in self.removals))
        return set(self.raw.zrange(f"{PREFIX}:ticks:repeat", 0, -1))

    @property
    def removals(self) -> list[Held]:
        return list(self.world.orphans.values())


async def until(condition: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def open_yard(url: str, raw: redis_py.Redis, namespaces: tuple[str, ...] = ()) -> AsyncIterator[Yard]:
    settings = RedisSettings(url=url)
    yard: Yard

    def report(pairs: Any) -> None:
        for charge, _ in pairs:
            for orphan in yard.removals:
                if orphan.charge is charge:
                    orphan.drop()

    world = World(
        options=Options(cluster="c-1", namespaces=namespaces),
        kube=None,  # type: ignore[arg-type] - nothing is asked of it here
        references=References(None, settings),  # type: ignore[arg-type]
        publisher=Publisher(FakeWriter()),  # type: ignore[arg-type]
        sites=Sites(lambda given: Site(given, report=report, sweep_seconds=1, max_len_events=100)),
    )
    group = asyncio.TaskGroup()
    async with group:
        world.sites.open(group)
        site = world.sites.get(settings)
        yard = Yard(world, site, OrphanHunt(world, clock=lambda: yard.now), raw)
        yield yard
        for charge in site.charges:
            site.drop(charge)
        world.sites.close_idle(keep=None)


@pytest.fixture
async def yard(redis_url: str, redis: redis_py.Redis) -> AsyncIterator[Yard]:
    async with open_yard(redis_url, redis) as made:
        yield made


async def test_an_orphan_is_removed_once_it_has_been_one_for_a_minute(yard: Yard) -> None:
    await yard.register("kept")
    await yard.register("gone", known=False)
    assert await yard.walk() == {"drain.kept", "drain.gone"}
    assert await yard.walk(59) == {"drain.kept", "drain.gone"}
    assert await yard.walk(2) == {"drain.kept"}
    assert not [key for key in yard.raw.keys(f"{PREFIX}:*") if "drain.gone" in key]


async def test_a_suspect_whose_resource_appears_is_left_alone(yard: Yard) -> None:
    await yard.register("kept")
    await yard.register("late", known=False)
    await yard.walk()
    yard.world.table.put(Entry.read(body("late")))
    assert await yard.walk(120) == {"drain.kept", "drain.late"}
    yard.world.table.drop(Entry.read(body("late")).key, "uid-late")
    assert await yard.walk(1) == {"drain.kept", "drain.late"}, "its minute begins anew"


@pytest.mark.parametrize(
    "changes", [{"cluster": "c-2"}, {"deletionPolicy": "Retain"}], ids=["another cluster's", "retained"]
)
async def test_what_is_anothers_or_meant_to_stay_is_left_alone(yard: Yard, changes: dict[str, Any]) -> None:
    await yard.register("kept")
    await yard.register("stays", known=False, **changes)
    await yard.walk()
    assert await yard.walk(600) == {"drain.kept", "drain.stays"}


@pytest.mark.parametrize("data", ["{}", "not json", json.dumps({"tickkeeper": {"cluster": "c-1"}})])
async def test_what_we_never_made_is_counted_and_left_alone(yard: Yard, data: str) -> None:
    await yard.register("kept")
    await yard.register("theirs", known=False)
    yard.raw.hset(f"{PREFIX}:ticks:repeat:drain.theirs", "data", data)
    await yard.walk()
    assert await yard.walk(600) == {"drain.kept", "drain.theirs"}
    assert yard.world.foreign == 1


async def test_what_an_invalid_resource_had_is_kept(yard: Yard) -> None:
    await yard.register("kept")
    await yard.register("invalid", known=False)
    yard.world.table.put(Entry.read(body("invalid", everyMs=5)))
    await yard.walk()
    assert await yard.walk(600) == {"drain.kept", "drain.invalid"}


async def test_what_a_resource_left_behind_when_it_moved_is_removed(yard: Yard) -> None:
    await yard.register("moved", jobName="old", known=False)
    await yard.register("moved", jobName="new")
    await yard.walk()
    assert await yard.walk(61) == {"new.moved"}


async def test_another_namespaces_scheduler_is_another_operators(redis_url: str, redis: redis_py.Redis) -> None:
    async with open_yard(redis_url, redis, namespaces=("other",)) as yard:
        await yard.register("kept")
        await yard.register("theirs", known=False)
        await yard.walk()
        assert await yard.walk(600) == {"drain.kept", "drain.theirs"}


async def test_the_last_schedule_of_a_queue_leaves_no_orphan_either(yard: Yard) -> None:
    charge = await yard.register("last", known=False)
    assert charge not in yard.site.charges
    await yard.walk()
    assert await yard.walk(61) == set()
