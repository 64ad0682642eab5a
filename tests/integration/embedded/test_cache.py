import subprocess
import sys
from pathlib import Path

import pytest

from embedded.cache import cache_folder, cached

ROOT = Path(__file__).parents[3]

MAKE_SLOWLY = """
import sys, time
from pathlib import Path
from embedded.cache import cached

def make(folder):
    with open(sys.argv[1], "a") as made:
        made.write("made\\n")
    (folder / "half").touch()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        time.sleep(0.05)
    (folder / "whole").touch()

print(sorted(path.name for path in cached("thing", make).iterdir()))
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_two_processes_make_a_thing_once_and_both_get_it_whole(tmp_path):
    both = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE_SLOWLY, str(tmp_path / "made")], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == ["['half', 'whole']"] * 2
    assert (tmp_path / "made").read_text() == "made\n"


def test_a_make_that_fails_leaves_nothing_and_is_tried_again():
    def fail(folder):
        (folder / "half").touch()
        raise ValueError("no network")

    with pytest.raises(ValueError, match="no network"):
        cached("thing", fail)
    assert [path.name for path in cache_folder().iterdir()] == ["thing.lock"]
    (cache_folder() / ".thing-of-a-killed-process").mkdir()
    assert list(cached("thing", lambda folder: (folder / "whole").touch()).iterdir())
    assert sorted(path.name for path in cache_folder().iterdir()) == ["thing", "thing.lock"]
