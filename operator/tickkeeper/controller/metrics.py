"""What the operator counts (Prometheus naming and units; docs/metrics.md). Labels are bounded: no tenant, no name."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tickkeeper.controller.site import Site
from tickkeeper.controller.world import World
from tickkeeper.controller.writer import Writer
from tickkeeper.telemetry.metrics import new_registry, tell_version

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class OperatorMetrics:
    """The operator's own; one instance a process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or new_registry()
        self.heal_latency = Histogram(
            "tickkeeper_heal_latency_seconds",
            "From the notice of a fault to its repair.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.pass_duration = Histogram(
            "tickkeeper_pass_duration_seconds",
            "A look at a Redis with all that follows: a sweep of everything, or the part that changed.",
            ("scope",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        tell_version(self.registry)

    def timed(self, scope: str, seconds: float, latency: float, mended: int) -> None:
        """Take in one pass of a site."""
        self.pass_duration.labels(scope).observe(seconds)
        for _ in range(mended):
            self.heal_latency.observe(latency)

    def watch(self, world: World, writer: Writer, leading: asyncio.Event) -> None:
        """Read the rest from the operator's state when somebody asks: nothing has to be kept in step."""
        self.registry.register(_State(world, writer, leading))


class _State(Collector):
    def __init__(self, world: World, writer: Writer, leading: asyncio.Event) -> None:
        self._world = world
        self._leading = leading
        self._writer = writer

    def describe(self) -> list[Metric]:
        """Nothing to name beforehand."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        yield self._schedules()
        yield from _redis(tuple(self._world.sites))
        yield _counter(
            "tickkeeper_heals", "Schedules found broken and registered again, by what was broken.", self._world.heals
        )
        yield _plain(CounterMetricFamily, "tickkeeper_reconcile_errors", "Failed tries.", self._world.reconcile_errors)
        yield _plain(
            GaugeMetricFamily,
            "tickkeeper_foreign_schedulers",
            "Schedulers in the queues in use that TickKeeper never made, at the last walk.",
            self._world.foreign,
        )
        yield _plain(CounterMetricFamily, "tickkeeper_api_writes", "Statuses and events written.", self._writer.writes)
        yield _plain(
            GaugeMetricFamily, "tickkeeper_leader", "1 on the replica that acts.", float(self._leading.is_set())
        )

    def _schedules(self) -> Metric:
        states: Tally[str] = Tally()
        for memo in tuple(self._world.memos.values()):
            states[memo.told.ready or "Unknown"] += 1
        family = GaugeMetricFamily(
            "tickkeeper_schedules", "TickSchedules, by the reason of their condition Ready.", labels=("reason",)
        )
        for reason, count in sorted(states.items()):
            family.add_metric((reason,), count)
        return family


def _redis(sites: Iterable[Site]) -> Iterator[Metric]:
    up = GaugeMetricFamily("tickkeeper_redis_up", "1 while the Redis answers.", labels=("redis",))
    tracking = GaugeMetricFamily("tickkeeper_redis_tracking", "1 while it pushes changes.", labels=("redis",))
    held = GaugeMetricFamily("tickkeeper_redis_schedules", "Schedules that a Redis holds.", labels=("redis",))
    swept = GaugeMetricFamily(
        "tickkeeper_redis_last_sweep_timestamp_seconds", "When everything in it was last checked.", labels=("redis",)
    )
    calls = CounterMetricFamily("tickkeeper_redis_calls", "What was asked of a Redis.", labels=("redis", "call"))
    for site in sites:
        up.add_metric((site.name,), float(bool(site.up)))
        tracking.add_metric((site.name,), float(bool(site.feed.tracking)))
        held.add_metric((site.name,), len(site.charges))
        if site.swept_at is not None:
            swept.add_metric((site.name,), site.swept_at)
        for call, count in site.calls().items():
            calls.add_metric((site.name, call), count)
    yield from (up, tracking, held, swept, calls)


def _counter(name: str, documentation: str, tally: Tally[str]) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=("cause",))
    for cause, count in sorted(tally.items()):
        family.add_metric((cause,), count)
    return family


def _plain(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, documentation: str, value: float
) -> Metric:
    return kind(name, documentation, value=value)
