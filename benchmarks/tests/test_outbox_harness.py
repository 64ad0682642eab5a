"""The machinery of `make bench-outbox` and `make chaos-outbox`: that it runs on real parts, judges what it must judge,
and keeps what it measured. How fast anything is belongs to the commands themselves; nothing here depends on it.
"""

import os
import random
import re
import subprocess
import sys
from array import array
from itertools import islice
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.chaos.account import Enqueued, account
from benchmarks.chaos.faults import FAULTS, sequence
from benchmarks.chaos.settings import settings
from benchmarks.keeper.result import Row
from benchmarks.outbox import records
from benchmarks.outbox.rows.lateness import judge
from benchmarks.outbox.rows.ordered import swapped
from benchmarks.outbox.sizes import sizes
from benchmarks.outbox.ticks import Tick
from benchmarks.tests.commands import ROOT, kept, run, run_python

BAR = re.compile(r"bar [a-z0-9-]+: [0-9.]+ \S+, wanted [<>]= [0-9.]+( [^,]+)?, (met|missed)")


@pytest.mark.parametrize(
    ("row", "bars"),
    [
        ("drain", ["drain"]),
        ("two-workers", ["two-workers-allow", "two-workers-forbid", "two-workers-doubled"]),
        ("exactly-once-batch", ["exactly-once-batch"]),
        ("ordered", ["ordered-keys", "ordered-hot-key", "ordered-swapped"]),
        (
            "lateness",
            [f"lateness-{when}-{what}" for when in ("idle", "busy") for what in ("p50", "p99", "lost", "doubled")],
        ),
        ("held-snapshot", ["held-snapshot"]),
        ("sampler", ["sampler"]),
        ("memory", ["memory-rest", "memory-after"]),
    ],
)
def test_a_row_is_measured_on_real_parts(row: str, bars: list[str], tmp_path: Path) -> None:
    done = run("benchmarks.outbox", tmp_path, QUICK="1", ROWS=row)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("bar ")]
    assert [line.split(":")[0].removeprefix("bar ") for line in said] == bars
    assert all(BAR.fullmatch(line) for line in said), said
    (found,) = kept(tmp_path)["rows"]
    assert found["name"] == row
    assert all(value >= 0 for figure in found["figures"] for value in figure["here"])
    never_wrong = {"two-workers-doubled", "ordered-swapped", "lateness-idle-doubled", "lateness-busy-doubled"}
    assert all(bar["value"] == 0 for bar in found["bars"] if bar["name"] in never_wrong)


def test_chaos_harms_and_accounts_for_every_row(tmp_path: Path) -> None:
    done = run("benchmarks.chaos", tmp_path, QUICK="1", MINUTES="0.1", SEED="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every row is accounted for: ok" in done.stdout
    document = kept(tmp_path)
    assert document["faults"]
    lines = document["account"]["lines"]
    assert {line["kind"] for line in lines} == {"effect.single", "effect.batch", "hook.post"}
    assert all(line["delivered"] + line["dead"] == line["enqueued"] > 0 for line in lines)


def test_chaos_fails_where_the_workers_are_broken_and_names_what_they_did(tmp_path: Path) -> None:
    code = """
        import sys
        from benchmarks.chaos import site
        from benchmarks.chaos.__main__ import main
        site._WORKER["HANDLERS"] = "benchmarks.tests.broken_handlers"
        sys.exit(main())
    """
    done = run_python("-c", dedent(code), results=tmp_path, QUICK="1", MINUTES="0.05", SEED="3")
    assert done.returncode == 1, done.stdout + done.stderr
    for kind, says in (
        ("effect.single", "rows are neither delivered nor dead"),
        ("effect.single", "effects too many"),
        ("effect.single", "rows are dead that did not ask for it, or are not that did"),
        ("effect.batch", "rows came after a later one of their key"),
    ):
        assert re.search(rf"^chaos-outbox: \w+ {kind}: \d+ {says}$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"\d+ things are wrong: failed$", done.stdout)
    assert kept(tmp_path)["account"]["faults"]


def test_a_bar_is_met_from_its_bound_on_and_missed_below() -> None:
    row = Row("row")
    row.at_least("at", 0.7, "x", 0.7, "x the ceiling")
    row.at_least("below", 0.69, "x", 0.7, "x the ceiling")
    assert [str(bar) for bar in row.bars] == [
        "bar at: 0.7 x, wanted >= 0.7 x the ceiling, met",
        "bar below: 0.69 x, wanted >= 0.7 x the ceiling, missed",
    ]


def test_quick_is_smaller_and_runs_holds_for_drains_too() -> None:
    whole, quick = sizes({}), sizes({"QUICK": "1"})
    assert quick.drained < whole.drained
    assert (whole.runs, whole.drain_runs) == (3, 5)
    assert (sizes({"RUNS": "2"}).runs, sizes({"RUNS": "2"}).drain_runs) == (2, 2)


def test_records_of_several_processes_are_read_without_what_is_half_written(tmp_path: Path) -> None:
    (tmp_path / "seen-q-1").write_bytes(array("q", [1, 2]).tobytes() + b"\0\0\0")
    (tmp_path / "seen-q-2").write_bytes(array("q", [3]).tobytes())
    assert [list(each) for each in records.read(tmp_path, "seen", "q")] == [[1, 2], [3]]


def tick(due: int, *, began: int | None = None, started: int = 1, name: str = "") -> Tick:
    return Tick(f"repeat:acme:{due}{name}", due, due + 3 if began is None else began, due + 9, started, {})


def test_lost_and_doubled_ticks_are_counted_after_the_start() -> None:
    start = [tick(0), tick(100), tick(200)]  # of which one is missing: the start is not judged
    window = [tick(500), tick(600), tick(800, started=2), tick(900), tick(900, name="b")]
    found = judge(start + window, every_ms=100)
    assert found.late_ms == [3] * 5
    assert (found.lost, found.doubled) == (1, 2)


@pytest.mark.parametrize(("ids", "count"), [([1, 2, 3], 0), ([1, 3, 2], 1), ([1, 1, 2], 1), ([3, 1, 2], 2)])
def test_rows_after_a_later_one_of_their_key_are_counted(ids: list[int], count: int) -> None:
    assert swapped(ids) == count


def effect(row_id: int, key: str | None = "k", *, dies: bool = False) -> Enqueued:
    return Enqueued(row_id, "acme", "effect.single", key, dies)


def hook(row_id: int, key: str | None = "k") -> Enqueued:
    return Enqueued(row_id, "acme", "hook.post", key)


@pytest.mark.parametrize(
    ("rows", "given", "says"),
    [
        ([effect(1)], {}, "acme effect.single: 1 rows are neither delivered nor dead"),
        ([hook(1)], {}, "acme hook.post: 1 rows are neither delivered nor dead"),
        ([effect(1)], {"left": [1]}, "acme effect.single: 1 rows were still there in the end"),
        ([effect(1)], {"effects": [1, 1]}, "acme effect.single: 1 effects too many"),
        ([effect(1)], {"effects": [1], "left": [1]}, "acme effect.single: 1 effects too many"),
        ([effect(1, dies=True)], {"effects": [1], "dead": [1]}, "acme effect.single: 1 effects too many"),
        ([effect(1)], {"dead": [1]}, "1 rows are dead that did not ask for it, or are not that did"),
        ([effect(1, dies=True)], {"effects": [1]}, "1 rows are dead that did not ask for it, or are not that did"),
        ([effect(1), effect(2)], {"effects": [2, 1]}, "acme effect.single: 1 rows came after a later one"),
        ([hook(1), hook(2)], {"accepted": [2, 1]}, "acme hook.post: 1 rows came after a later one"),
        ([], {"effects": [7]}, "1 rows were delivered that nobody enqueued: [7]"),
    ],
)
def test_the_account_finds_what_must_not_be(rows: list[Enqueued], given: dict[str, list[int]], says: str) -> None:
    found = account(rows, **{"effects": [], "accepted": [], "dead": [], "left": []} | given)
    assert any(says in fault for fault in found.faults), found.faults


def test_the_account_of_a_good_end_has_no_fault() -> None:
    rows = [effect(1), effect(2, dies=True), effect(3), effect(4, key=None), hook(5), hook(6)]
    # By HTTP a row may come again, with those behind it, where its acknowledgement was lost.
    found = account(rows, effects=[4, 1, 3], accepted=[5, 6, 5, 6], dead=[2], left=[])
    assert found.faults == []
    assert [(line.kind, line.enqueued, line.delivered, line.dead, line.again) for line in found.lines] == [
        ("effect.single", 4, 3, 1, 0),
        ("hook.post", 2, 2, 0, 2),
    ]


def test_a_seed_decides_the_harm_and_each_sort_comes_once_first() -> None:
    asked = settings({"SEED": "7", "MINUTES": "1"})
    assert asked == settings({"SEED": "7", "MINUTES": "1"})
    first, second = (list(islice(sequence(random.Random(asked.seed)), 40)) for _ in range(2))
    assert first == second
    assert set(first[: len(FAULTS)]) == set(FAULTS)


def test_a_clock_is_stepped_by_the_file_and_goes_on_otherwise(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("3600")
    code = "import time; print(time.time() - time.clock_gettime(time.CLOCK_REALTIME), time.time_ns() // 10**9)"
    env = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks" / "chaos" / "clock"), "CHAOS_CLOCK": str(clock)}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert float(said.split()[0]) == pytest.approx(3600, abs=5)
