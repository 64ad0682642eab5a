"""Keeps the outbox's gauges fresh: one worker of all that share a database takes a sample every 15 s."""

import asyncio
import math
import random
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tickkeeper.bullmq.tenants import Scheduled, scheduled
from tickkeeper.outbox.sampler import Sample
from tickkeeper.outbox.store import SchemaError, StoreUnavailable
from tickkeeper.telemetry import logs
from tickkeeper.telemetry.outbox import OutboxGauges
from tickkeeper.telemetry.redaction import describe
from tickkeeper.worker.outcome import clean

_log = logs.get_logger(__name__)

#: Between two samples. Slots begin at its multiples by the database's clock, the same for all workers.
PERIOD = 15.0
#: Who has taken the last sample asks at the slot's beginning, others after it: so the gauges stay with one worker.
_OTHERS_FROM, _OTHERS_TO = 0.4, 0.8
#: For how long the turn is kept, so that all others find it taken. The sampler's ``hold``.
HOLD = 1.0
#: Queues that no worker of ours was told to work are looked for once in so many samples.
_QUEUES_EVERY = 20
_SAY_AGAIN = 600.0
_NAMED = 20


class Sampler(Protocol):
    """What ``OutboxSampler`` is to us."""

    async def sample(self) -> Sample | None:
        """Take one; None when it is somebody else's turn."""
        ...

    async def now(self) -> float:
        """The database's clock: seconds since 1970."""
        ...


@dataclass(frozen=True, slots=True)
class Schedules:
    """Where schedules are: a Redis, a prefix, and queues in it; ``default_tenant``: of ticks without one."""

    client: Redis
    prefix: str
    queues: Collection[str]
    default_tenant: str | None = None


class OutboxWatch:
    """``run`` samples until it is cancelled, whatever fails meanwhile."""

    def __init__(self, sampler: Sampler, gauges: OutboxGauges, schedules: Schedules, *, period: float = PERIOD) -> None:
        self._sampler = sampler
        self._gauges = gauges
        self._schedules = schedules
        self._period = period
        #: the database's clock less our monotonic one
        self._offset: float | None = None
        self._ours = False
        self._samples = 0
        self._queues = frozenset(schedules.queues)
        self._fault: str | None = None
        self._said = -_SAY_AGAIN

    async def run(self) -> None:
        """Sample in every slot that is ours."""
        while True:
            await asyncio.sleep(self._wait())
            try:
                await self._turn()
                self._fault = None
            except Exception as error:  # noqa: BLE001 - whatever it is, the next slot comes
                self._ours = False
                self._gauges.samples.labels("failed").inc()
                fault = clean(describe(error))
                if fault != self._fault:
                    # An outbox that is away is told of by the worker's own watch.
                    tell = _log.debug if isinstance(error, StoreUnavailable | SchemaError) else _log.warning
                    tell("outbox not sampled", error=fault)
                self._fault = fault

    def _wait(self) -> float:
        """Seconds until we ask next."""
        if self._offset is None:
            return random.uniform(0, min(1.0, self._period))  # noqa: S311 - spreads competitors
        now = time.monotonic() + self._offset
        wait = (math.floor(now / self._period) + 1) * self._period - now
        if wait < self._period / 4:
            wait += self._period  # the clock was read a little differently: that slot is the one we come from
        return wait if self._ours else wait + random.uniform(_OTHERS_FROM, _OTHERS_TO)  # noqa: S311 - as above

    async def _turn(self) -> None:
        if self._offset is None:
            # Not at once: of many workers that start together each would take one.
            self._offset = await self._sampler.now() - time.monotonic()
            return
        sample = await self._sampler.sample()
        if sample is None:
            self._ours = False
            self._gauges.samples.labels("elsewhere").inc()
            self._gauges.hide()
            return
        self._ours = True
        self._samples += 1
        self._gauges.samples.labels("taken").inc()
        without = await self._without_schedule(sample)
        self._gauges.show(rows(sample), figures(sample, None if without is None else len(without)))
        self._offset = await self._sampler.now() - time.monotonic()

    async def _without_schedule(self, sample: Sample) -> list[str] | None:
        """Who has rows and no schedule; None where Redis does not say."""
        places = self._schedules
        try:
            found = await scheduled(places.client, places.prefix, self._queues, more=self._samples % _QUEUES_EVERY == 1)
        except (RedisError, OSError, TimeoutError):
            return None  # the queues' own supervision tells of it
        self._queues = self._queues | set(found.queues)
        without = without_schedule(sample.tenants, found, places.default_tenant)
        if without and time.monotonic() - self._said >= _SAY_AGAIN:
            self._said = time.monotonic()
            _log.warning("tenants have rows and no schedule", tenants=without[:_NAMED], count=len(without))
        return without


def without_schedule(tenants: Collection[str], found: Scheduled, default_tenant: str | None) -> list[str]:
    """Of ``tenants`` those that nothing ticks for, in order."""
    ticked = found.tenants | ({default_tenant} if default_tenant and found.nameless else set())
    return sorted(set(tenants) - ticked)


def rows(sample: Sample) -> dict[str, int]:
    """Its counts by state."""
    return {
        "ready": sample.ready,
        "leased": sample.leased,
        "scheduled": sample.scheduled,
        "behind": sample.behind,
        "dead": sample.dead,
    }


def figures(sample: Sample, without_schedule: int | None) -> dict[str, float | None]:
    """Its other figures by the names of their gauges."""
    seconds = [holder.seconds for holder in sample.holders if holder.seconds is not None]
    return {
        "oldest_due_age_seconds": sample.oldest_due or 0.0,
        "oldest_created_age_seconds": sample.oldest_created or 0.0,
        "expired_leases": sample.expired,
        "counts_exact": int(sample.exact),
        "tenants": len(sample.tenants) if sample.tenants or sample.every_tenant else None,
        "tenants_without_schedule": without_schedule,
        "xmin_age_transactions": max((holder.transactions for holder in sample.holders), default=0),
        "xmin_age_seconds": max(seconds, default=None if sample.holders else 0.0),
        "dead_tuples": sample.dead_tuples,
        "sample_duration_seconds": sample.took,
        "sample_timestamp_seconds": sample.taken_at,
    }
