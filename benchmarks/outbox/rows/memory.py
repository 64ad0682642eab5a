"""What a worker needs: at rest, and after a great many rows."""

import time

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.progress import say
from benchmarks.outbox import table
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage

_TENANT = "acme"
_PORTION = 100_000


def play(sizes: Sizes) -> Row:
    """Once: it does not depend on what else the machine does."""
    row = Row("memory", raw={"during_mb": []})
    with Stage() as stage:
        worker = stage.worker("noop", BATCH_SIZE=str(sizes.batch))
        stage.ticks.schedule(_TENANT, every_ms=1000)
        say(f"memory: {sizes.rest:g} s at rest, ticking every second")
        time.sleep(sizes.rest)
        stage.ticks.unschedule(_TENANT)
        rest = worker.rss_mb()
        for _ in range(max(1, sizes.many // _PORTION)):
            rows = min(_PORTION, sizes.many)
            table.fill(stage.connection, rows)
            stage.drain(rows)
            row.raw["during_mb"].append(worker.rss_mb())
        after = worker.rss_mb()
    row.figures += [
        Figure("RSS at rest", "MiB", [rest]),
        Figure(f"RSS after {sizes.many} rows", "MiB", [after]),
    ]
    row.at_most("memory-rest", rest, "MiB", 100)
    row.at_most("memory-after", after, "MiB", 150)
    return row
