"""What the commands say of environment variables that they cannot use."""

from pathlib import Path

import pytest

from benchmarks.tests.commands import run


@pytest.mark.parametrize(
    ("module", "variables", "says"),
    [
        ("benchmarks.outbox", {"ROWS": "drain,quick"}, "ROWS=drain,quick: quick is none of drain, drain-peers"),
        ("benchmarks.outbox", {"RUNS": "none"}, "RUNS=none: a whole number of at least 1"),
        ("benchmarks.keeper", {"ROWS": "removal,quick"}, "ROWS=removal,quick: quick is none of held"),
        ("benchmarks.keeper", {"RUNS": "0"}, "RUNS=0: a whole number of at least 1"),
        ("benchmarks.soak", {"MINUTES": "-1"}, "MINUTES=-1: a number above 0"),
        ("benchmarks.soak", {"SEED": "x"}, "SEED=x: a whole number"),
        ("benchmarks.chaos", {"MINUTES": "0"}, "MINUTES=0: a number above 0"),
        ("benchmarks.chaos", {"SEED": "-1"}, "SEED=-1: a whole number"),
    ],
)
def test_a_wrong_variable_is_named(module: str, variables: dict[str, str], says: str, tmp_path: Path) -> None:
    done = run(module, tmp_path, **variables)
    assert done.returncode == 2
    assert says in done.stderr
    assert not list(tmp_path.iterdir())
