"""The benchmarks' own machinery: that they run on real parts, say what they promise, and keep what they measured.

How fast anything is belongs to `make bench-keeper`; nothing here depends on it.
"""

import json
import math
import re
from pathlib import Path

import pytest

from benchmarks.keeper.peers.watch import resumed
from benchmarks.keeper.report import table
from benchmarks.keeper.result import Figure, Row
from benchmarks.keeper.sizes import sizes
from benchmarks.lab.figures import number, percentile, spread
from benchmarks.lab.monitor import Looks
from benchmarks.soak.settings import settings
from benchmarks.tests.commands import kept, run
from embedded.redis import Redis

BAR = re.compile(r"bar [a-z0-9-]+: [0-9.]+ \S+, wanted <= [0-9.]+( [^,]+)?, (met|missed)")


def test_a_row_is_measured_on_real_parts(tmp_path: Path) -> None:
    done = run("benchmarks.keeper", tmp_path, QUICK="1", RUNS="2", ROWS="flushall-1000")
    assert done.returncode == 0, done.stderr
    bars = [line for line in done.stdout.splitlines() if line.startswith("bar ")]
    assert [line.split(":")[0] for line in bars] == ["bar flushall-1000", "bar flushall-1000-first-tick"]
    assert all(BAR.fullmatch(line) for line in bars), bars
    (row,) = kept(tmp_path)["rows"]
    assert len(row["raw"]["wipes"]) == 2
    assert all(wipe["healed"] > 0 and wipe["floor"] > 0 for wipe in row["raw"]["wipes"])
    # Both runs saw a tick of each of the twenty schedules.
    assert [len(ticks) for ticks in row["raw"]["first_ticks_ms"]] == [20, 20]


def test_a_soak_does_harm_and_ends_well(tmp_path: Path) -> None:
    done = run("benchmarks.soak", tmp_path, QUICK="1", MINUTES="0.2", SEED="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every schedule ticks: ok" in done.stdout
    document = kept(tmp_path)
    assert document["silent"] == {}
    assert document["faults"]


def test_a_bar_is_met_up_to_its_bound_and_missed_beyond() -> None:
    row = Row("row")
    row.at_most("at", 1.5, "x", 1.5, "x the floor")
    row.at_most("beyond", 1.51, "x", 1.5, "x the floor")
    assert [str(bar) for bar in row.bars] == [
        "bar at: 1.5 x, wanted <= 1.5 x the floor, met",
        "bar beyond: 1.51 x, wanted <= 1.5 x the floor, missed",
    ]
    assert all(BAR.fullmatch(str(bar)) for bar in row.bars)


def test_a_table_has_one_line_for_each_figure() -> None:
    lines = table([Row("row", [Figure("time", "s", [3.0, 1.0, 2.0], [0.5]), Figure("peer", "s", [math.inf])])])
    assert lines.splitlines()[2:] == ["row: time [s]  2 (1-3)  0.5    3", "row: peer [s]  never    -      1"]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.4, "1234"), (0.00123456, "0.00123"), (2.5, "2.5"), (100.0, "100")]
)
def test_numbers_are_short_and_plain(value: float, text: str) -> None:
    assert number(value) == text


def test_percentiles_are_values_that_were_measured() -> None:
    values = list(range(1, 201))
    assert [percentile(values, rank) for rank in (50, 99, 100)] == [100, 198, 200]
    assert spread([]) == "-"


@pytest.mark.parametrize(
    ("firings", "again"),
    [
        ([], math.inf),
        ([0.4], math.inf),  # it was under way
        ([0.4, 1.4, *range(2, 30)], 0.4),
        ([0.4, *range(20, 30)], 20),
    ],
)
def test_only_a_chain_that_goes_on_counts_as_firing_again(firings: list[float], again: float) -> None:
    assert resumed([100.0 + each for each in firings], 100.0, 130.0) == pytest.approx(again)


def test_the_same_seed_is_the_same_soak() -> None:
    first, second = (settings({"SEED": "7", "MINUTES": "1"}) for _ in range(2))
    assert first == second
    wanted = first.schedules()
    assert len({(schedule.queue, schedule.id) for schedule in wanted}) == len(wanted) == 200
    assert any(schedule.every_ms == 0 for schedule in wanted)


def test_quick_is_smaller_in_everything() -> None:
    whole, quick = sizes({}), sizes({"QUICK": "1"})
    assert quick.ten_thousand < whole.ten_thousand
    assert quick.runs < whole.runs == 3
    assert sizes({"QUICK": "0"}) == whole


def test_looks_are_seen_wherever_a_script_is_given_an_id() -> None:
    with Redis() as redis, redis.client() as client:
        script = client.script_load("return 1")
        with Looks(redis.port, ["a:1", "b:2", "b"]) as looks:
            client.get("a:1")  # no script
            client.evalsha(script, 1, "a:1", json.dumps([["b:2", 5]]))
            client.evalsha(script, 0, "bb")
            assert not looks.complete.wait(0.2)
            client.evalsha(script, 0, "b")
            assert looks.complete.wait(10)
