"""A thousand schedules in one queue, each ticking every second: what watching that many changes costs."""

from collections.abc import Iterator

from benchmarks.keeper.result import Figure, Row
from benchmarks.keeper.sizes import Sizes
from benchmarks.keeper.usage import usage
from benchmarks.lab.figures import median
from benchmarks.lab.progress import say
from benchmarks.lab.schedules import schedules
from benchmarks.lab.stage import Stage

ROWS = ("every-second",)

_EVERY_MS = 1_000


def play(sizes: Sizes, chosen: frozenset[str]) -> Iterator[Row]:
    """One scene, one row."""
    assert chosen
    with Stage(schedules(sizes.thousand, queues=1, every_ms=_EVERY_MS)) as stage:
        worker = stage.start_worker()
        stage.start_operator()
        row = Row("every-second")
        found = []
        for run in range(sizes.runs):
            say(f"every-second, window {run + 1} of {sizes.runs}: {sizes.every_second:g} s")
            found.append(usage(stage, worker, sizes.every_second))
        row.raw["windows"] = [each.raw for each in found]
        cores = [each.cpu_percent for each in found]
        row.figures += [
            Figure("the operator's CPU", "% of a core", cores),
            Figure(f"ticks (of {sizes.thousand} wanted)", "/s", [each.ticks_a_second for each in found]),
            Figure("API writes", "in all", [each.api_writes for each in found]),
        ]
        row.at_most("every-second-cpu", median(cores), "%", 10, "of a core")
        yield row
