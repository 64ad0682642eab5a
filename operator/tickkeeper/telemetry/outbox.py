"""The gauges of a sampled outbox. They come from whoever took the last sample; others show none of them."""

import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

#: Seconds after which figures are no longer shown: two samples were missed.
_FRESH = 40.0

#: Name, without the prefix, and what it is. The name of a figure is the name of its gauge.
GAUGES = {
    "oldest_due_age_seconds": "Since the earliest due row became due, a worker's or not; 0 where none is due.",
    "oldest_created_age_seconds": "Since the oldest row was enqueued whose time has come; 0 where there is none.",
    "expired_leases": "Rows whose lease ran out and that nobody claimed since.",
    "counts_exact": "1 where the numbers of rows are exact, 0 where each says at least so many.",
    "tenants": "Tenants that have rows.",
    "tenants_without_schedule": "Tenants that have rows and no schedule in any queue that the worker could find.",
    "xmin_age_transactions": "Transactions begun since the oldest snapshot that keeps dead rows from being cleaned up.",
    "xmin_age_seconds": "How old that snapshot is, where the role may see it.",
    "dead_tuples": "Dead row versions that wait for vacuum.",
    "sample_duration_seconds": "How long the last sample took.",
    "sample_timestamp_seconds": "When it was taken, by the database's clock.",
}
STATES = ("ready", "leased", "scheduled", "behind", "dead")


class OutboxGauges(Collector):
    """What ``show`` was given last, for as long as it is fresh. Some fifteen series, whatever the outbox holds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rows: Mapping[str, int] = {}
        self._figures: Mapping[str, float | None] = {}
        self._shown_at = -_FRESH
        self.samples = Counter(
            "tickkeeper_outbox_samples",
            "Turns of the sampler: taken, elsewhere (another worker took it), failed.",
            ("outcome",),
            registry=registry,
        )
        registry.register(self)

    def show(self, rows: Mapping[str, int], figures: Mapping[str, float | None]) -> None:
        """New figures: rows by state, the others by the names of GAUGES. Absent and None are not shown."""
        self._rows, self._figures, self._shown_at = rows, figures, time.monotonic()

    def hide(self) -> None:
        """Show none: somebody else has them."""
        self._rows, self._figures = {}, {}

    def describe(self) -> Iterator[Metric]:
        """The metrics without samples."""
        yield _rows()
        for name in GAUGES:
            yield _gauge(name)

    def collect(self) -> Iterator[Metric]:
        """The metrics as Prometheus reads them."""
        if time.monotonic() - self._shown_at > _FRESH:
            return
        rows = _rows()
        for state, count in self._rows.items():
            rows.add_metric([state], count)
        yield rows
        for name in GAUGES:
            value = self._figures.get(name)
            if value is not None:
                gauge = _gauge(name)
                gauge.add_metric([], value)
                yield gauge


def _rows() -> GaugeMetricFamily:
    what = "Rows by state, counted up to 10 000: ready, leased, scheduled, behind (an earlier row of their key), dead."
    return GaugeMetricFamily("tickkeeper_outbox_rows", what, labels=["state"])


def _gauge(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tickkeeper_outbox_{name}", GAUGES[name])
