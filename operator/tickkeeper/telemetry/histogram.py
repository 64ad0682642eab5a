"""A histogram with one label that costs a fraction of prometheus_client's: it is written once for each row."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class QuickHistogram(Collector):
    """For one thread only (prometheus_client locks twice an observation: 1.5 µs against 0.05, measured).

    Values are kept as they come, and sorted into their buckets many at a time.
    """

    def __init__(
        self, name: str, documentation: str, label: str, buckets: Sequence[float], *, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._bounds = [*buckets, float("inf")]
        self._new: dict[str, list[float]] = {}
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        registry.register(self)

    def of(self, value: str) -> Callable[[float], None]:
        """What takes an observation of label value ``value``; whoever calls it calls ``fold`` now and then."""
        if value not in self._new:
            self._new[value], self._counts[value], self._sums[value] = [], [0] * len(self._bounds), 0.0
        return self._new[value].append

    def fold(self) -> None:
        """Sort what came into its buckets."""
        for value, new in self._new.items():
            if not new:
                continue
            self._sums[value] += sum(new)
            new.sort()
            counts, below = self._counts[value], 0
            for place, bound in enumerate(self._bounds):
                upto = bisect_right(new, bound, below)
                counts[place] += upto - below
                below = upto
            new.clear()

    def describe(self) -> Iterator[Metric]:
        """The metric without samples."""
        yield HistogramMetricFamily(self._name, self._documentation, labels=[self._label])

    def collect(self) -> Iterator[Metric]:
        """The metric as Prometheus reads it: cumulative buckets."""
        self.fold()
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, counts in list(self._counts.items()):
            total, buckets = 0, []
            for bound, count in zip(self._bounds, counts, strict=True):
                total += count
                buckets.append((floatToGoString(bound), total))  # type: ignore[no-untyped-call]
            family.add_metric([value], buckets, self._sums[value])
        yield family
