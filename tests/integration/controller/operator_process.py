"""``tickkeeper operator`` as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-c", "from tickkeeper.cli import main; main()", "operator")


class Operator:
    """One process after another with the same settings, and one log of them all."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._log = folder / "operator.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TICKKEEPER_")}
        self.environment = {
            **inherited,
            "PYTHONPATH": str(ROOT / "operator"),
            "TMPDIR": str(folder),  # where a killed process leaves a kubeconfig's certificates
            "TICKKEEPER_HTTP_PORT": "0",
            "TICKKEEPER_LOG_LEVEL": "debug",
            "TICKKEEPER_SWEEP_SECONDS": "0.5",
            "TICKKEEPER_SECRET_REFRESH_SECONDS": "2",
            **environment,
        }
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, *, synced: bool = True) -> None:
        """Start it; with ``synced``, return once it knows every resource."""
        before = len(self.events("synced"))
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                COMMAND, env=self.environment, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )
        if synced:
            self.wait_for(lambda: len(self.events("synced")) > before)

    @property
    def popen(self) -> subprocess.Popen[bytes]:
        assert self._popen is not None, "not started"
        return self._popen

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        lines = (json.loads(line) for line in self.text.splitlines() if f'"{name}"' in line and line.startswith("{"))
        return [line for line in lines if line["event"] == name]

    def sweeps(self) -> int:
        """How many sweeps there have been since its start, of any Redis."""
        return int(self.metric("tickkeeper_pass_duration_seconds_count", '{scope="sweep"}'))

    def after_sweeps(self, count: int) -> None:
        """Wait until so many more sweeps are over, whatever they found."""
        before = self.sweeps()
        self.wait_for(lambda: self.sweeps() >= before + count, interval=0.1)

    def wait_for(self, condition: Callable[[], Any], seconds: float = 30.0, *, interval: float = 0.02) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.running or condition(), f"the operator ended with {self.popen.poll()}:\n{self.tail}"
            assert time.monotonic() < deadline, f"not within {seconds} s\n{self.tail}"
            time.sleep(interval)

    @property
    def tail(self) -> str:
        """The end of its log, without the lines that come ten times a second."""
        return "\n".join(line for line in self.text.splitlines() if '"feed_broke"' not in line)[-4000:]

    def get(self, path: str) -> tuple[int, str]:
        """One of its HTTP pages: status and body."""
        address = self.events("operator_started")[-1]["http"]
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str, labels: str = "") -> float:
        """A sample of /metrics; 0 where there is none."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{name}{labels} "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def terminate(self, seconds: float = 15.0) -> int:
        """SIGTERM; its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(seconds)

    def kill(self) -> None:
        """SIGKILL."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()

    @property
    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.popen.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")


@contextmanager
def operator_process(folder: Path, *, kubeconfig: Path, **settings: str) -> Iterator[Operator]:
    """An operator, not started yet, that is killed at the end. ``settings`` without their prefix, in capitals."""
    operator = Operator(
        folder,
        {
            "TICKKEEPER_KUBECONFIG": str(kubeconfig),
            **{f"TICKKEEPER_{name}": value for name, value in settings.items()},
        },
    )
    try:
        yield operator
    finally:
        operator.kill()
