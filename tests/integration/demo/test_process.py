"""The demo as a process: it says what goes wrong, and nothing of it outlives it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedded.guard import alive, descendants
from embedded.process import wait_for

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "demo")


class Demo:
    """One run; its temporary folders lie in ``folder``, its output in ``log``."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._log = folder / "demo.log"
        own = {"TMPDIR": str(folder), "KEEP": "", "CLUSTER": "", "PYTHONPATH": str(ROOT / "operator")}
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                COMMAND, cwd=ROOT, env=os.environ | own | environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        def there() -> bool:
            assert self.popen.poll() is None, self.text
            return text in self.text

        wait_for(there, seconds=300, what=text)

    def child(self, words: str) -> int:
        """The process below it whose command line holds ``words``."""
        for pid in descendants(self.popen.pid):
            said = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
            if words in said.stdout:
                return pid
        raise AssertionError(f"no {words}")

    def end(self) -> None:
        """Interrupt it and wait; what it has started ends with it."""
        self.popen.send_signal(signal.SIGINT)
        try:
            self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def left(self) -> list[str]:
        return [path.name for path in self.folder.iterdir() if path != self._log]


@pytest.fixture
def start() -> Iterator[Callable[..., Demo]]:
    """Starts a demo whose temporary folders PostgreSQL's own user can pass through; ended at the end, if it runs."""
    with tempfile.TemporaryDirectory(prefix="demo-test-", dir="/tmp") as name, contextlib.ExitStack() as demos:
        Path(name).chmod(0o755)

        def start(**environment: str) -> Demo:
            demo = Demo(Path(name), **environment)
            demos.callback(demo.end)
            return demo

        yield start


def test_an_interrupted_demo_ends_all_that_it_has_started(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.wait_for("registered as")
    running = descendants(demo.popen.pid)
    assert len(running) >= 6  # etcd, kube-apiserver, redis-server, postgres, operator, worker
    demo.popen.send_signal(signal.SIGINT)
    demo.popen.send_signal(signal.SIGINT)  # impatience changes nothing
    assert demo.popen.wait(60) == 128 + signal.SIGINT
    assert "demo: ok" not in demo.text
    wait_for(lambda: not any(map(alive, running)), seconds=20, what="every process gone")
    wait_for(lambda: not demo.left(), seconds=20, what="every folder gone")


def test_a_failing_demo_says_where_and_why_and_shows_the_logs(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.wait_for("registered as")
    running = descendants(demo.popen.pid)
    os.kill(demo.child("tickkeeper worker"), signal.SIGKILL)
    assert demo.popen.wait(60) == 1
    last = demo.text.strip().splitlines()[-1]
    assert last.startswith("demo: failed at "), demo.text
    assert last.endswith("tickkeeper worker has ended"), demo.text
    assert "the last lines of tickkeeper operator:" in demo.text
    assert "worker started" in demo.text
    wait_for(lambda: not any(map(alive, running)), seconds=20, what="every process gone")
    wait_for(lambda: not demo.left(), seconds=20, what="every folder gone")


def test_what_a_kept_demo_prints_works_by_copy_and_paste(start: Callable[..., Demo]) -> None:
    demo = start(KEEP="1")
    demo.wait_for("registered as")
    os.kill(demo.child("tickkeeper worker"), signal.SIGKILL)  # it is kept too when it failed, and sooner
    demo.wait_for("and is left running")
    demo.wait_for("/metrics")
    lines = [line for line in demo.text.splitlines() if line.startswith(("  export ", "  /")) and " -c " not in line]
    shell = "\n".join([*(line for line in lines if " get " not in line), "env | grep ^TICKKEEPER_"])
    done = subprocess.run(["bash", "-ec", shell], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{shell}\n{done.stderr}"
    assert "TENANT" in done.stdout
    assert "TICKKEEPER_REDIS_URL=redis://127.0.0.1:" in done.stdout
    (file,) = demo.folder.glob("*/pgpass")
    assert file.read_text().strip().rpartition(":")[2] not in demo.text, "a log may keep what is printed"
    demo.popen.send_signal(signal.SIGINT)
    demo.popen.wait(60)
    wait_for(lambda: not demo.left(), seconds=20, what="every folder gone")


def test_a_missing_part_is_told_in_one_line(start: Callable[..., Demo]) -> None:
    demo = start(REDIS_SERVER="/nonexistent/redis-server")
    assert demo.popen.wait(200) == 1
    last = demo.text.strip().splitlines()[-1]
    assert last.startswith("demo: failed at getting the parts: "), demo.text
    assert "REDIS_SERVER=/nonexistent/redis-server" in last
    assert "Traceback" not in demo.text
    wait_for(lambda: not demo.left(), seconds=20, what="every folder gone")


def test_an_unknown_cluster_is_refused_before_anything_starts(start: Callable[..., Demo]) -> None:
    demo = start(CLUSTER="minikube")
    assert demo.popen.wait(30) == 2
    assert demo.text == "demo: CLUSTER=minikube: must be current, or unset for the embedded API server\n"
