"""Schedulers whose resource is gone: a finalizer released while Redis was away must leave no immortal tick."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from tickkeeper.api.tick import Stamp
from tickkeeper.bullmq.census import queues, stamps
from tickkeeper.bullmq.errors import REDIS_ERRORS, explain
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.controller.charge import Charge, Intent
from tickkeeper.controller.memo import Held
from tickkeeper.controller.reconcile import to_remove
from tickkeeper.controller.site import Site
from tickkeeper.controller.world import World
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.desired import Owner, Place, ResourceKey

_log = structlog.get_logger(__name__)

#: Seconds between two walks over all queues.
_EVERY = 300.0
#: Seconds for which an orphan must have been one: a watch may lag behind.
_PATIENCE = 60.0
_DEFAULT_PREFIX = "bull"


@dataclass(slots=True)
class OrphanHunt:
    """Walks over the queues in use and removes what this cluster stamped for a resource that no longer names it."""

    world: World
    every: float = _EVERY
    patience: float = _PATIENCE
    clock: Callable[[], float] = time.monotonic
    _suspects: dict[Target, float] = field(default_factory=dict)
    #: queues found by a look at the whole Redis, once for each: an earlier process may have left something there
    _queues: dict[str, set[QueueKey]] = field(default_factory=dict)

    async def run(self) -> None:
        """Hunt until cancelled."""
        while True:
            await asyncio.sleep(min(self.every, self.patience) if self._suspects else self.every)
            await self.walk()

    async def walk(self) -> None:
        """One walk over every Redis in use; one that is away is left for the next."""
        suspects: dict[Target, float] = {}
        self.world.foreign = 0
        own = self.world.references.default
        if own is not None:
            self.world.sites.get(own)  # looked at even when no resource names it now
        for site in self.world.sites:
            if site.up:
                try:
                    await self._walk_site(site, suspects)
                except REDIS_ERRORS as error:
                    _log.info("orphan_walk_failed", redis=site.name, error=explain(error))
                except Exception:  # noqa: BLE001
                    # What somebody else wrote there must not end the operator.
                    _log.exception("orphan_walk_failed", redis=site.name)
        self._suspects = suspects

    async def _walk_site(self, site: Site, suspects: dict[Target, float]) -> None:
        if site.name not in self._queues:
            prefixes = {_DEFAULT_PREFIX, *(queue.prefix for queue in site.queues_seen)}
            self._queues[site.name] = {queue for prefix in prefixes async for queue in queues(site.client, prefix)}
        for queue in self._queues[site.name] | site.queues_seen:
            async for scheduler_id, stamp in stamps(site.client, queue):
                target = Target(site.name, Place(queue.prefix, queue.queue, scheduler_id))
                if stamp is None or stamp.cluster != self.world.options.cluster:
                    self.world.foreign += stamp is None
                elif stamp.deletion_policy == "Delete" and not self._is_named(target, stamp):
                    since = suspects[target] = self._suspects.get(target, self.clock())
                    if self.clock() - since >= self.patience:
                        self._remove(site, target, stamp)

    def _is_named(self, target: Target, stamp: Stamp) -> bool:
        """Whether a resource names the scheduler, or may: an invalid or paused one keeps what it has."""
        if self.world.claims.owner(target) is not None or target in self.world.orphans:
            return True
        key = ResourceKey(stamp.namespace, stamp.name)
        if self.world.options.namespaces and key.namespace not in self.world.options.namespaces:
            return True  # another operator's namespace
        memo = self.world.memos.get(key)
        entry = self.world.table.get(key)
        if entry is None:
            return False
        return memo is None or memo.held is None or memo.held.target == target or bool(memo.leaving)

    def _remove(self, site: Site, target: Target, stamp: Stamp) -> None:
        _log.warning(
            "orphan_removed",
            redis=site.name,
            scheduler_id=target.place.scheduler_id,
            namespace=stamp.namespace,
            name=stamp.name,
        )
        owner = Owner(stamp.cluster, ResourceKey(stamp.namespace, stamp.name), stamp.uid, stamp.generation)
        held = Held(site, Charge(to_remove(owner, target.place), Intent.REMOVE), target)
        self.world.orphans[target] = held
        site.take(held.charge)
