"""Effects in the same database exactly once: by lists against the ceiling, row by row against procrastinate."""

from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox import table
from benchmarks.outbox.peers.catalogue import PROCRASTINATE
from benchmarks.outbox.rows.peers import drain
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage
from embedded.errors import PartFailed

#: Transactions side by side: while one waits for the server, the other one's list is made.
_LISTS = 2


def play_batch(sizes: Sizes) -> Row:
    """Worker and ceiling take turns; the ceiling has no effects."""
    row = Row("exactly-once-batch", raw={"runs": []})
    rates, bounds = [], []
    with Stage() as stage:
        _effects(stage)
        stage.worker("once_batch", BATCH_SIZE=str(sizes.batch), CONCURRENCY=str(_LISTS))
        _drain(stage, sizes.warm)
        for run in range(sizes.runs):
            say(f"exactly-once-batch, run {run + 1} of {sizes.runs}")
            raw: dict[str, Any] = {"load": load()}
            bounds.append(sizes.drained / table.ceiling(stage.connection, sizes.drained, sizes.batch))
            rate, raw["drain"] = _drain(stage, sizes.drained)
            rates.append(rate)
            row.raw["runs"].append(raw)
    what = (
        f"lists with one INSERT each, {_LISTS} at once, {sizes.drained} rows, batch {sizes.batch} (floor: the ceiling)"
    )
    row.figures.append(Figure(what, "rows/s", rates, bounds))
    row.at_least("exactly-once-batch", median(rates) / median(bounds), "x", 0.5, "x the ceiling")
    return row


def play_single(sizes: Sizes) -> Row:
    """Worker and procrastinate take turns on one server."""
    PROCRASTINATE.prepare()
    row = Row("exactly-once-single", raw={"runs": []})
    rates, theirs = [], []
    with Stage() as stage:
        _effects(stage)
        stage.worker("once_single", BATCH_SIZE=str(sizes.batch))
        _drain(stage, sizes.warm)
        dsn = stage.postgres.create_database("peer_procrastinate")
        PROCRASTINATE.run(dsn, "setup")
        for run in range(sizes.runs):
            say(f"exactly-once-single, run {run + 1} of {sizes.runs}")
            raw: dict[str, Any] = {"load": load()}
            rate, raw["drain"] = _drain(stage, sizes.single_rows)
            rates.append(rate)
            rate, raw["procrastinate"] = drain(PROCRASTINATE, dsn, sizes.single_rows, "once")
            theirs.append(rate)
            row.raw["runs"].append(raw)
    what = f"rows with one INSERT each, {sizes.single_rows} rows (floor: {PROCRASTINATE.label})"
    row.figures.append(Figure(what, "rows/s", rates, theirs))
    row.at_least("exactly-once-single", median(rates) / median(theirs), "x", 2, "x procrastinate")
    return row


def _effects(stage: Stage) -> None:
    stage.connection.execute("CREATE TABLE effects (id bigint NOT NULL)")


def _drain(stage: Stage, rows: int) -> tuple[float, Any]:
    """Raises PartFailed unless each row has had its effect exactly once."""
    stage.connection.execute("TRUNCATE effects")
    table.fill(stage.connection, rows)
    drained = stage.drain(rows)
    found = stage.connection.execute("SELECT count(*), count(DISTINCT id) FROM effects").fetchone()
    if found != (rows, rows):
        raise PartFailed(f"{rows} rows had effects (in all, of different rows): {found}")
    return drained.rate, drained.raw
