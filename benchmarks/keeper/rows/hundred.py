"""A hundred schedules: single removals, and edits one after another."""

from collections.abc import Iterator

from benchmarks.keeper.edits import measure_edits
from benchmarks.keeper.result import Figure, Row, ratios
from benchmarks.keeper.sizes import Sizes
from benchmarks.lab.figures import median, percentile
from benchmarks.lab.progress import say
from benchmarks.lab.schedules import Schedule, schedules
from benchmarks.lab.stage import Stage

ROWS = ("removal", "edits")

#: What the change feed waits for on purpose: at most one count each 50 ms and queue.
_WINDOW_MS = 50.0
#: Seconds between two changes: with the window shut again, and within it.
_CALM, _HURRY = (0.06, 0.12), (0.0, 0.03)
_TEN_MINUTES_MS = 600_000


def play(sizes: Sizes, chosen: frozenset[str]) -> Iterator[Row]:
    """Quiet schedules that nothing ticks, and busy ones that tick every second."""
    quiet = schedules(sizes.edited, queues=1, every_ms=_TEN_MINUTES_MS, name="quiet")
    busy = schedules(sizes.edited, queues=1, every_ms=1_000, name="busy")
    with Stage([*quiet, *busy]) as stage:
        stage.start_worker()
        stage.start_operator()
        if "removal" in chosen:
            yield _removal(stage, sizes, quiet, busy)
        if "edits" in chosen:
            stage.settle()
            yield measure_edits(stage, sizes, quiet)


def _removal(stage: Stage, sizes: Sizes, quiet: list[Schedule], busy: list[Schedule]) -> Row:
    """Removed by an application's last replica, registered again by the operator; bare upserts in between."""
    row = Row("removal")
    bare = stage.start_bare()

    def removals(members: list[Schedule], pause: tuple[float, float]) -> tuple[list[float], list[float]]:
        question = {"queue": members[0].queue, "ids": [each.id for each in members], "floor_queue": members[0].queue}
        said = bare.ask({"do": "removals", **question, "times": sizes.removals, "pause": pause}, seconds=900)
        return said["healed_ms"], said["bare_ms"]

    for name, members, pause, window in (("quiet", quiet, _CALM, 0.0), ("busy", busy, _HURRY, _WINDOW_MS)):
        healed, floors = [], []
        for run in range(sizes.runs):
            say(f"removal, {name} queue, run {run + 1} of {sizes.runs}: {sizes.removals} removals")
            mine, bares = removals(members, pause)
            healed.append(mine)
            floors.append(bares)
        row.raw[name] = {"healed_ms": healed, "bare_ms": floors}
        for rank in (50, 99):
            here, floor = ([percentile(run, rank) for run in runs] for runs in (healed, floors))
            row.figures.append(Figure(f"{name} queue, p{rank}", "ms", here, floor))
        beyond = [max(0.0, value - window) for value in here]
        note = "x the floor's p99" + (f" beyond the window of {_WINDOW_MS:g} ms" if window else "")
        row.at_most(f"removal-{name}-p99", median(ratios(beyond, floor)), "x", 10, note)
    longest = max(value for name in ("quiet", "busy") for run in row.raw[name]["healed_ms"] for value in run)
    row.at_most("removal-longest", longest, "ms", 100)
    return row
