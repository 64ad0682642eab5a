"""What the operator counts (Prometheus naming and units; docs/metrics.md). Labels are bounded: no tenant, no name."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tickkeeper import __version__
from tickkeeper.api.conditions import ConditionType
from tickkeeper.controller.world import World
from tickkeeper.controller.writer import Writer
from tickkeeper.telemetry.metrics import new_registry


class OperatorMetrics:
    """The operator's own; one instance a process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or new_registry()
        Info("tickkeeper_build", "What runs.", registry=self.registry).info({"version": __version__})

    def watch(self, world: World, writer: Writer, leading: asyncio.Event) -> None:
        """Read the rest from the operator's state when somebody asks."""
        self.registry.register(_State(world, writer, leading))


class _State(Collector):
    """Gauges that are derived at the moment of the scrape: nothing has to be kept in step."""

    def __init__(self, world: World, writer: Writer, leading: asyncio.Event) -> None:
        self._world = world
        self._leading = leading
        self._writer = writer

    def describe(self) -> list[Metric]:
        """Nothing to name beforehand."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        states: Tally[str] = Tally()
        for memo in self._world.memos.values():
            ready = memo.status.condition(ConditionType.READY)
            states[ready.reason if ready is not None else "Unknown"] += 1
        schedules = GaugeMetricFamily(
            "tickkeeper_schedules", "TickSchedules, by the reason of their condition Ready.", labels=("reason",)
        )
        for reason, count in sorted(states.items()):
            schedules.add_metric((reason,), count)
        yield schedules
        up = GaugeMetricFamily("tickkeeper_redis_up", "1 while the Redis answers.", labels=("redis",))
        charges = GaugeMetricFamily("tickkeeper_redis_schedules", "Schedules that a Redis holds.", labels=("redis",))
        for site in self._world.sites:
            up.add_metric((site.name,), 1.0 if site.up else 0.0)
            charges.add_metric((site.name,), len(site.charges))
        yield up
        yield charges
        heals = CounterMetricFamily(
            "tickkeeper_heals", "Schedules found broken and registered again, by what was broken.", labels=("cause",)
        )
        for cause, count in sorted(self._world.heals.items()):
            heals.add_metric((cause,), count)
        yield heals
        writes = CounterMetricFamily("tickkeeper_api_writes", "Statuses and events written to the API server.")
        writes.add_metric((), self._writer.writes)
        yield writes
        leader = GaugeMetricFamily("tickkeeper_leader", "1 on the replica that acts.")
        leader.add_metric((), 1.0 if self._leading.is_set() else 0.0)
        yield leader
