"""Ten thousand schedules in twenty queues, ticking: wiped, watched by a new operator, and left alone."""

import time
from collections.abc import Iterator

from benchmarks.keeper.floor import Floor
from benchmarks.keeper.result import Figure, Row, ratios
from benchmarks.keeper.sizes import Sizes
from benchmarks.keeper.usage import usage
from benchmarks.keeper.watching import start_and_check, start_bare_watch
from benchmarks.keeper.wipe import wipe
from benchmarks.lab.bare import FLOOR_PREFIX
from benchmarks.lab.figures import median
from benchmarks.lab.partner import Partner
from benchmarks.lab.progress import say
from benchmarks.lab.schedules import schedules
from benchmarks.lab.stage import Stage

ROWS = ("steady", "operator-restart", "flushall-10000")

#: Seconds of status writing after a wipe in which their rate is taken.
_WRITING = 5.0
_RSS_MB = 250
_CPU_PERCENT = 5


def play(sizes: Sizes, chosen: frozenset[str]) -> Iterator[Row]:
    """The quiet rows first: a wipe leaves minutes of statuses to write."""
    wanted = schedules(sizes.ten_thousand, queues=sizes.many_queues, every_ms=sizes.ten_thousand_every_ms)
    say(f"creating {len(wanted)} TickSchedules")
    with Stage(wanted) as stage:
        worker = stage.start_worker()
        stage.start_operator()
        if "steady" in chosen:
            yield _steady(stage, sizes, worker)
        if "operator-restart" in chosen:
            yield _operator_restart(stage, sizes)
        if "flushall-10000" in chosen:
            stage.start_worker(FLOOR_PREFIX)
            yield _flushall(stage, sizes)


def _steady(stage: Stage, sizes: Sizes, worker: Partner) -> Row:
    row = Row("steady")
    found = []
    for run in range(sizes.runs):
        say(f"steady, window {run + 1} of {sizes.runs}: {sizes.steady / sizes.runs:g} s")
        found.append(usage(stage, worker, sizes.steady / sizes.runs))
    row.raw["windows"] = [each.raw for each in found]
    cores, memory = [each.cpu_percent for each in found], [each.rss_mb for each in found]
    writes = sum(each.api_writes for each in found)
    row.figures += [
        Figure("the operator's CPU", "% of a core", cores),
        Figure("its memory", "MiB RSS", memory),
        Figure(f"API writes in {sizes.steady:g} s", "in all", [writes]),
        Figure("ticks", "/s", [each.ticks_a_second for each in found]),
    ]
    row.at_most("steady-cpu", median(cores), "%", _CPU_PERCENT, "of a core")
    row.at_most("steady-memory", max(memory), "MiB", _RSS_MB)
    row.at_most("steady-api-writes", writes, "writes", 0)
    return row


def _operator_restart(stage: Stage, sizes: Sizes) -> Row:
    row = Row("operator-restart", raw={"runs": []})
    checked: list[float] = []
    floors: list[float] = []
    cpus: list[float] = []
    writes: list[float] = []
    for run in range(sizes.runs):
        say(f"operator-restart, run {run + 1} of {sizes.runs}")
        floor, floor_cpu = start_bare_watch(stage)
        stage.operator.kill()
        served = stage.api_writes_served()
        seconds, cpu = start_and_check(stage)
        time.sleep(sizes.quiet)
        written = max(stage.operator.api_writes(), stage.api_writes_served() - served)
        row.raw["runs"].append(
            {"checked_s": seconds, "cpu_s": cpu, "floor_s": floor, "floor_cpu_s": floor_cpu, "api_writes": written}
        )
        for values, value in ((checked, seconds), (floors, floor), (cpus, cpu), (writes, written)):
            values.append(value)
    total = len(stage.wanted)
    row.figures += [
        Figure(f"start -> all {total} known and checked (floor: known to a bare kopf handler)", "s", checked, floors),
        Figure("CPU until then", "s", cpus, [each["floor_cpu_s"] for each in row.raw["runs"]]),
        Figure(f"API writes until {sizes.quiet:g} s later", "in all", writes),
    ]
    row.at_most("operator-restart", median(ratios(checked, floors)), "x", 2, "x the floor")
    row.at_most("operator-restart-api-writes", max(writes), "writes", 0)
    return row


def _flushall(stage: Stage, sizes: Sizes) -> Row:
    floor = Floor(stage.start_bare(), stage.queues, sizes.ten_thousand_every_ms)
    floor.calibrate(min(len(stage.wanted), 1_000))
    row = Row("flushall-10000", raw={"floor_s_by_concurrency": floor.tried})
    found, rates = [], []
    for run in range(sizes.runs):
        say(f"flushall-10000, run {run + 1} of {sizes.runs}")
        found.append(wipe(stage, floor))
        before, started = stage.operator.api_writes(), time.monotonic()
        time.sleep(_WRITING)
        rates.append((stage.operator.api_writes() - before) / (time.monotonic() - started))
        # A new operator finds every status as true as it is: no need to wait for minutes of heal counts.
        stage.operator.kill()
        stage.operator.start()
        stage.settle()
    healed, bare = [each.healed for each in found], [each.floor for each in found]
    row.raw |= {"wipes": [each.raw for each in found], "status_writes_a_second": rates}
    row.figures += [
        Figure(f"FLUSHALL -> all {len(stage.wanted)} registered", "s", healed, bare),
        Figure("the operator's CPU for it", "s", [each.cpu for each in found]),
        Figure(f"statuses and events written in the {_WRITING:g} s after", "/s", rates),
    ]
    row.at_most("flushall-10000", median(ratios(healed, bare)), "x", 1.5, "x the floor")
    return row
