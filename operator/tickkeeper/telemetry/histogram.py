"""A histogram with one label that costs a fraction of prometheus_client's: it is written once for each row."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class QuickHistogram(Collector):
    """For one thread only (prometheus_client locks twice an observation: 1.5 µs against 0.3, measured)."""

    def __init__(
        self, name: str, documentation: str, label: str, buckets: Sequence[float], *, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._bounds = [*buckets, float("inf")]
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        registry.register(self)

    def observe(self, value: str, seconds: float) -> None:
        """One observation of label value ``value``."""
        counts = self._counts.get(value)
        if counts is None:
            counts = self._counts[value] = [0] * len(self._bounds)
            self._sums[value] = 0.0
        counts[bisect_left(self._bounds, seconds)] += 1
        self._sums[value] += seconds

    def describe(self) -> Iterator[Metric]:
        """The metric without samples."""
        yield HistogramMetricFamily(self._name, self._documentation, labels=[self._label])

    def collect(self) -> Iterator[Metric]:
        """The metric as Prometheus reads it: cumulative buckets."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, counts in list(self._counts.items()):
            total, buckets = 0, []
            for bound, count in zip(self._bounds, counts, strict=True):
                total += count
                buckets.append((floatToGoString(bound), total))  # type: ignore[no-untyped-call]
            family.add_metric([value], buckets, self._sums[value])
        yield family
