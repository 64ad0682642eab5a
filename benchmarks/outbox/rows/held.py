"""Draining while somebody holds an old snapshot: the rows that left before stay in the table as dead ones."""

from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox import table
from benchmarks.outbox.rows.drain import warm
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage


def play(sizes: Sizes) -> Row:
    """Without, then behind as many dead rows."""
    row = Row("held-snapshot", raw={"runs": []})
    free, held = [], []
    with Stage() as stage:
        stage.worker("noop", BATCH_SIZE=str(sizes.batch))
        warm(stage, sizes)
        for run in range(sizes.runs):
            say(f"held-snapshot, run {run + 1} of {sizes.runs}")
            raw: dict[str, Any] = {"load": load()}
            table.fill(stage.connection, sizes.held)
            free.append(stage.drain(sizes.held).rate)
            with table.connect(stage.dsn) as holder:
                table.empty(stage.connection)
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT pg_current_snapshot()")
                table.add(stage.connection, sizes.held)
                stage.drain(sizes.held)
                table.add(stage.connection, sizes.held)
                table.settle(stage.connection)
                raw["dead"] = _dead(stage)
                held.append(stage.drain(sizes.held).rate)
                holder.execute("ROLLBACK")
            row.raw["runs"].append(raw)
    what = f"{sizes.held} rows behind as many dead ones under a held snapshot (floor: without)"
    row.figures.append(Figure(what, "rows/s", held, free))
    row.at_least("held-snapshot", median(held) / median(free), "x", 0.4, "x without")
    return row


def _dead(stage: Stage) -> int:
    """Dead rows by the server's own count."""
    found = stage.connection.execute(
        "SELECT n_dead_tup FROM pg_stat_all_tables WHERE schemaname = 'tickkeeper' AND relname = 'outbox'"
    ).fetchone()
    return int(str(found[0])) if found else 0
