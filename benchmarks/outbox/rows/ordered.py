"""Rows that are delivered in order within their key: many keys, one hot key, and two workers with failures."""

from collections import defaultdict
from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox import records, table
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Drained, Stage
from embedded.errors import PartFailed

_FAIL_ONE_IN = 100
_ROUNDS = 600


def play(sizes: Sizes) -> Row:
    """The same handler for all, so that what is compared is the order alone."""
    row = Row("ordered", raw={"runs": []})
    plain, many, hot, faulty = [], [], [], []
    with Stage() as stage:
        for run in range(sizes.runs):
            say(f"ordered, run {run + 1} of {sizes.runs}")
            raw: dict[str, Any] = {"load": load()}
            worker = stage.worker("ordered", BATCH_SIZE=str(sizes.batch))
            _fill_plain(stage, sizes.warm)
            stage.drain(sizes.warm)
            _fill_plain(stage, sizes.ordered)
            plain.append(_keep(raw, "unordered", stage.drain(sizes.ordered)))
            table.fill_keys(stage.connection, sizes.ordered, keys=sizes.keys)
            many.append(_keep(raw, "many", _drain(stage, sizes.ordered, workers=1)))
            table.fill_keys(stage.connection, sizes.ordered, keys=sizes.keys, hot=True)
            hot.append(_keep(raw, "hot", _drain(stage, sizes.ordered, workers=1)))
            stage.end(worker)
            two = [
                stage.worker("ordered", BATCH_SIZE=str(sizes.batch), BENCH_FAIL_ONE_IN=str(_FAIL_ONE_IN))
                for _ in range(2)
            ]
            table.fill_keys(stage.connection, sizes.faulty, keys=sizes.keys)
            faulty.append(_keep(raw, "faulty", _drain(stage, sizes.faulty, workers=2)))
            for each in two:
                stage.end(each)
            row.raw["runs"].append(raw)
        late, delivered = _out_of_order(stage)
    row.raw |= {"out_of_order": late, "delivered": delivered}
    row.figures += [
        Figure(f"{sizes.keys} keys, {sizes.ordered} rows (floor: unordered)", "rows/s", many, plain),
        Figure(f"half of {sizes.ordered} rows in one key (floor: unordered)", "rows/s", hot, plain),
        Figure(f"two workers, 1 % failures, {sizes.faulty} rows", "rows/s", faulty),
    ]
    row.at_least("ordered-keys", median(many) / median(plain), "x", 0.4, "x unordered")
    row.at_least("ordered-hot-key", median(hot) / median(plain), "x", 0.1, "x unordered")
    row.at_most("ordered-swapped", late, "rows", 0, f"of {delivered}")
    return row


def _fill_plain(stage: Stage, rows: int) -> None:
    """Without order, and with the payload that the others have; key -1 is not looked at."""
    table.empty(stage.connection)
    stage.connection.execute(
        """SELECT count(*) FROM generate_series(0, %s::int - 1) n CROSS JOIN LATERAL tickkeeper.enqueue(
           tenant_id => %s, kind => %s, payload => jsonb_build_object('key', -1 - n)) e""",
        (rows, table.TENANT, table.KIND),
    )
    table.settle(stage.connection)


def _drain(stage: Stage, rows: int, *, workers: int) -> Drained:
    """Ticks until all is delivered: a tick ends when nothing is due, and a row that failed is due a little later."""
    ticks = []
    for _ in range(_ROUNDS):
        ids = stage.ticks.add((table.TENANT,) * workers)
        ticks += stage.ticks.results(ids, seconds=600, alive=stage.alive)
        if sum(tick.done for tick in ticks) >= rows:
            return stage.drained(rows, ticks)
    raise PartFailed(f"{table.left(stage.connection)} of {rows} rows were not delivered within {_ROUNDS} ticks")


def _out_of_order(stage: Stage) -> tuple[int, int]:
    """Rows delivered after a later one of their key, or twice, of so many. A key's rows never run beside one another,
    so the time of the call orders them over both processes."""
    calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    total = 0
    for each in records.read(stage.records, "ordered", "q"):
        total += len(each) // 3
        for start in range(0, len(each) - 2, 3):
            key, row_id, when = each[start : start + 3]
            if key >= 0:
                calls[key].append((when, row_id))
    # Ids go on rising from run to run, so one key's runs follow one another.
    return sum(swapped([row_id for _, row_id in sorted(found)]) for found in calls.values()), total


def swapped(ids: list[int]) -> int:
    """How many of a key's rows came after a later one, or again."""
    highest, found = 0, 0
    for row_id in ids:
        found += row_id <= highest
        highest = max(highest, row_id)
    return found


def _keep(raw: dict[str, Any], name: str, drained: Drained) -> float:
    raw[name] = drained.raw
    return drained.rate
