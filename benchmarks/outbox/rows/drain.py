"""One worker process against a loop in the server; and the best of the peers against the same worker."""

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median, number
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox import table
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage

#: The largest run may be so much faster than the slowest, in parts of the median, before all are run again.
_SPREAD = 0.25
_LANES = 3


def play(sizes: Sizes) -> Row:
    """Worker and ceiling take turns on the same table."""
    row = Row("drain", raw={"lanes": _LANES, "attempts": []})
    with Stage() as stage:
        worker = stage.worker("noop", BATCH_SIZE=str(sizes.batch), LANES=str(_LANES))
        warm(stage, sizes)
        for attempt in range(sizes.again + 1):
            rates, bounds, leased, cpu, drains, loads = [], [], [], [], [], []
            for run in range(sizes.drain_runs):
                say(f"drain, run {run + 1} of {sizes.drain_runs}")
                loads.append(load())
                bounds.append(sizes.drained / table.ceiling(stage.connection, sizes.drained, sizes.batch))
                apart = table.ceiling(stage.connection, sizes.drained, sizes.batch, apart=True)
                leased.append(sizes.drained / apart)
                table.fill(stage.connection, sizes.drained)
                before = worker.cpu_seconds()
                drained = stage.drain(sizes.drained)
                cpu.append((worker.cpu_seconds() - before) / drained.rows * 1e6)
                rates.append(drained.rate)
                drains.append(drained.raw)
            row.raw["attempts"].append(
                {"rates": rates, "ceilings": bounds, "apart": leased, "cpu_us": cpu, "loads": loads, "drains": drains}
            )
            wide = max(_spread(rates), _spread(bounds))
            if wide <= _SPREAD or attempt == sizes.again:
                break
            say(f"drain: the runs lie {wide:.0%} apart, more than {_SPREAD:.0%}: once more")
    row.raw["spread"] = wide
    what = f"{sizes.drained} rows of {table.PAYLOAD_BYTES} B, one worker, {_LANES} lanes, batch {sizes.batch}"
    row.figures += [
        Figure(f"{what} (floor: the ceiling)", "rows/s", rates, bounds),
        Figure("the ceiling where each claim is committed before its rows leave, as a lease is", "rows/s", leased),
        Figure("the worker's own CPU, without the server's", "µs/row", cpu),
    ]
    note = f"x the ceiling (spread {number(wide * 100)} %)"
    row.at_least("drain", median(rates) / median(bounds), "x", 0.7, note)
    return row


def warm(stage: Stage, sizes: Sizes) -> None:
    """Connections and statements exist before the clock starts, as in a process that has been running."""
    table.fill(stage.connection, sizes.warm)
    stage.drain(sizes.warm)


def _spread(values: list[float]) -> float:
    return (max(values) - min(values)) / median(values)
