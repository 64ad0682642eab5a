"""What the worker counts. Labels are bounded: queues, and the kinds that have a handler; never tenants or ids."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from tickkeeper import __version__
from tickkeeper.telemetry.histogram import QuickHistogram

_TICK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_CALL_BUCKETS = (0.001, 0.0025, *_TICK_BUCKETS)
_ROW_BUCKETS = (0, 1, 10, 50, 100, 250, 500, 1000, 5000, 10_000)


def new_registry() -> CollectorRegistry:
    """A registry of one process, with its memory, CPU and file descriptors."""
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def tell_version(registry: CollectorRegistry) -> None:
    """Which version of the program runs."""
    Info("tickkeeper_build", "What runs.", registry=registry).info({"version": __version__})


class WorkerMetrics:
    """The worker's own; one instance a process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or new_registry()
        tell_version(self.registry)
        self.ticks = Counter(
            "tickkeeper_ticks",
            "Ticks, by how they ended: empty, budget, shutdown, lost, overlap (skipped), failed, invalid.",
            ("queue", "outcome"),
            registry=self.registry,
        )
        self.tick_seconds = Histogram(
            "tickkeeper_tick_duration_seconds",
            "How long a tick took, skipped ones left out.",
            ("queue",),
            buckets=_TICK_BUCKETS,
            registry=self.registry,
        )
        self.tick_lag_seconds = Histogram(
            "tickkeeper_tick_lag_seconds",
            "How much later than its due time a tick was taken up.",
            ("queue",),
            buckets=_TICK_BUCKETS,
            registry=self.registry,
        )
        self.rows = Counter(
            "tickkeeper_rows",
            "Rows settled, by what became of them: done, retried, dead, snoozed, released.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self.rows_fenced = Counter(
            "tickkeeper_rows_fenced",
            "Rows that were no longer ours when their outcome was written: somebody else handles them again.",
            registry=self.registry,
        )
        self.rows_buried = Counter(
            "tickkeeper_rows_buried",
            "Rows that a claim moved to the dead letters: their last attempt gave no answer.",
            registry=self.registry,
        )
        self.claim_seconds = Histogram(
            "tickkeeper_claim_duration_seconds",
            "How long a claim took.",
            buckets=_CALL_BUCKETS,
            registry=self.registry,
        )
        self.claim_rows = Histogram(
            "tickkeeper_claim_rows",
            "How many rows a claim took.",
            buckets=_ROW_BUCKETS,
            registry=self.registry,
        )
        self.handler_seconds = QuickHistogram(
            "tickkeeper_handler_duration_seconds",
            "How long a handler took for one row, or for one list of rows.",
            "kind",
            _CALL_BUCKETS,
            registry=self.registry,
        )
        self.rows_in_hand = Gauge(
            "tickkeeper_rows_in_hand",
            "Rows that are claimed and not settled yet.",
            registry=self.registry,
        )
        self.abandoned = Gauge(
            "tickkeeper_handlers_abandoned",
            "Handlers that were told to stop and still run: blocked threads, swallowed cancellations.",
            registry=self.registry,
        )
        self.errors = Counter(
            "tickkeeper_worker_errors",
            "Errors of the queue's machinery, by kind: redis, outbox, script, scheduler, run_ended, listener, other.",
            ("queue", "type"),
            registry=self.registry,
        )
        self.lock_losses = Counter(
            "tickkeeper_lock_losses",
            "Jobs whose BullMQ lock was lost while they ran.",
            ("queue",),
            registry=self.registry,
        )
        self.stalled = Counter(
            "tickkeeper_stalled_jobs",
            "Jobs that this worker found abandoned by another and put back.",
            ("queue",),
            registry=self.registry,
        )
        self.redis_up = Gauge(
            "tickkeeper_worker_redis_up",
            "1 while the last exchange with the queue's Redis worked.",
            ("queue",),
            registry=self.registry,
        )
        self.last_contact = Gauge(
            "tickkeeper_worker_last_contact_timestamp_seconds",
            "When the queue's Redis last answered this worker.",
            ("queue",),
            registry=self.registry,
        )
