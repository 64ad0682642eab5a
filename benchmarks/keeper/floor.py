"""The floor of registering: bare upserts of the same library at the concurrency that serves them best."""

from dataclasses import dataclass, field

from benchmarks.lab.partner import Partner

_CONCURRENCIES = (4, 8, 16, 32, 64)
_TRIES = 2


@dataclass(slots=True)
class Floor:
    """Bare upserts of ``count`` schedulers over ``queues``, beside those that the operator looks after."""

    bare: Partner
    queues: list[str]
    every_ms: int
    #: seconds by concurrency, as tried at the start
    tried: dict[int, float] = field(default_factory=dict)

    def calibrate(self, count: int) -> None:
        """Find the best concurrency on ``count`` upserts."""
        for _ in range(_TRIES):
            for concurrency in _CONCURRENCIES:
                seconds = self._upserts(count, concurrency)
                self.tried[concurrency] = min(seconds, self.tried.get(concurrency, seconds))

    def seconds(self, count: int) -> float:
        """How long ``count`` bare upserts take now."""
        return self._upserts(count, min(self.tried, key=self.tried.__getitem__))

    def _upserts(self, count: int, concurrency: int) -> float:
        question = {"queues": self.queues, "count": count, "every_ms": self.every_ms, "concurrency": concurrency}
        return float(self.bare.ask({"do": "upserts", **question}, seconds=300)["seconds"])
