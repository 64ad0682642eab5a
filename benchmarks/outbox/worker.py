"""``tickkeeper worker`` as a process of its own, driven by environment variables as a user drives it."""

import os
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from benchmarks.lab.processes import cpu_seconds, rss_mb
from embedded.errors import PartFailed
from embedded.ports import free_port
from embedded.process import Process

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = Path(sys.executable).with_name("tickkeeper")
_START_SECONDS = 60.0


class Worker:
    """One worker. ``settings``: its variables without their prefix; ``more``: other variables."""

    def __init__(
        self, folder: Path, *, redis_url: str, database_url: str, settings: Mapping[str, str], more: Mapping[str, str]
    ) -> None:
        """Describe it; ``start`` starts it."""
        self._port = free_port()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TICKKEEPER_")}
        given = {
            "REDIS_URL": redis_url,
            "DATABASE_URL": database_url,
            "HTTP_PORT": str(self._port),
            "LOG_LEVEL": "warning",
            **settings,
        }
        self._env = (
            inherited
            | {"PYTHONPATH": more.get("PYTHONPATH", f"{_ROOT}{os.pathsep}{_ROOT / 'operator'}")}
            | {f"TICKKEEPER_{name}": value for name, value in given.items()}
            | {name: value for name, value in more.items() if name != "PYTHONPATH"}
        )
        self.log = folder / "worker.log"
        self._process = Process([_PROGRAM, "worker"], log=self.log, cwd=folder, env=self._env)

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process.running

    def start(self, *, ready: bool = True) -> None:
        """Start it, and return once it says that it is ready unless ``ready`` is False."""
        self._process.start()
        if ready:
            self._process.wait_until(self._ready, seconds=_START_SECONDS)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()

    def freeze(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self._process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.thaw()

    def stop(self, *, seconds: float = 30) -> None:
        """SIGTERM, and SIGKILL where that does not help. Idempotent."""
        self._process.stop(seconds=seconds)

    def cpu_seconds(self) -> float:
        """User and system time since its start."""
        return cpu_seconds(self._process.pid)

    def rss_mb(self) -> float:
        """Resident memory in MiB."""
        return rss_mb(self._process.pid)

    def check(self) -> None:
        """Raises PartFailed with the end of its log when it has ended."""
        if not self.running:
            raise PartFailed(f"the worker ended: {self.log_tail()}")

    def log_tail(self) -> str:
        """The end of its log."""
        return self._process.log_tail()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
