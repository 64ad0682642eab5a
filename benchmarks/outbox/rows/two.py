"""Two worker processes against one: a tenant that both drain at once, and two tenants of which each has its own."""

import time
from collections import Counter
from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox import records, table
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Drained, Stage
from embedded.errors import PartFailed

_TENANTS = ("acme", "globex")
_EVERY_MS = 500
_SECONDS = 600.0
_LOOK = 0.1


def play(sizes: Sizes) -> Row:
    """One worker, both with Allow, both with Forbid, in turn."""
    row = Row("two-workers", raw={"runs": []})
    one, allow, forbid = [], [], []
    with Stage() as stage:
        for run in range(sizes.runs):
            say(f"two-workers, run {run + 1} of {sizes.runs}")
            raw: dict[str, Any] = {"load": load()}
            single = stage.worker("seen", BATCH_SIZE=str(sizes.batch))
            _warm(stage, sizes, 1)
            table.fill(stage.connection, sizes.drained)
            one.append(_keep(raw, "one", stage.drain(sizes.drained)))
            second = stage.worker("seen", BATCH_SIZE=str(sizes.batch))
            _warm(stage, sizes, 2)
            table.fill(stage.connection, sizes.drained)
            allow.append(_keep(raw, "allow", stage.drain(sizes.drained, (table.TENANT,) * 2)))
            table.fill(stage.connection, sizes.drained, _TENANTS)
            forbid.append(_keep(raw, "forbid", _scheduled(stage, sizes.drained)))
            row.raw["runs"].append(raw)
            for worker in (single, second):
                stage.end(worker)
        doubled = _doubled(stage)
    row.raw["doubled"] = doubled
    row.figures += [
        Figure(f"two workers, one tenant, Allow, {sizes.drained} rows (floor: one worker)", "rows/s", allow, one),
        Figure(f"two workers, two tenants, Forbid, {sizes.drained} rows (floor: one worker)", "rows/s", forbid, one),
    ]
    row.at_least("two-workers-allow", median(allow) / median(one), "x", 0.9, "x one worker")
    row.at_least("two-workers-forbid", median(forbid) / median(one), "x", 0.9, "x one worker")
    row.at_most("two-workers-doubled", doubled, "rows", 0)
    return row


def _keep(raw: dict[str, Any], name: str, drained: Drained) -> float:
    raw[name] = drained.raw
    return drained.rate


def _warm(stage: Stage, sizes: Sizes, workers: int) -> None:
    table.fill(stage.connection, sizes.warm * workers)
    stage.drain(sizes.warm * workers, (table.TENANT,) * workers)


def _scheduled(stage: Stage, rows: int) -> Drained:
    """By a scheduler for each tenant: Forbid binds the ticks of a schedule."""
    known = {tick.id for tick in stage.ticks.over()}
    for tenant in _TENANTS:
        stage.ticks.schedule(tenant, every_ms=_EVERY_MS)
    deadline = time.monotonic() + _SECONDS
    while True:
        ticks = [tick for tick in stage.ticks.over() if tick.id not in known and tick.result.get("claimed")]
        if sum(tick.done for tick in ticks) >= rows:
            break
        stage.alive()
        if time.monotonic() > deadline:
            raise PartFailed(f"{rows} rows were not drained within {_SECONDS:g} s")
        time.sleep(_LOOK)
    for tenant in _TENANTS:
        stage.ticks.unschedule(tenant)
    return stage.drained(rows, ticks)


def _doubled(stage: Stage) -> int:
    """Calls beyond the first of each row, over all that was drained: ids are never given twice."""
    calls = Counter(row_id for each in records.read(stage.records, "seen", "q") for row_id in each)
    return sum(calls.values()) - len(calls)
