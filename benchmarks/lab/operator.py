"""``tickkeeper operator`` as a child process at its default settings, and what it uses and tells."""

import os
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.lab.processes import cpu_seconds, rss_mb
from embedded.ports import free_port
from embedded.process import Process

_PROGRAM = Path(sys.executable).with_name("tickkeeper")


class Operator:
    """One process after another with the same settings and one log."""

    def __init__(self, folder: Path, *, redis_url: str, kubeconfig: Path) -> None:
        """Describe it; ``start`` starts it."""
        self._folder = folder
        self._inherited = {name: value for name, value in os.environ.items() if not name.startswith("TICKKEEPER_")}
        self._settings = {"TICKKEEPER_REDIS_URL": redis_url, "TICKKEEPER_KUBECONFIG": str(kubeconfig)}
        self._url = ""
        self._process: Process | None = None
        self.log = folder / "operator.log"

    @property
    def process(self) -> Process:
        """The process that was started last."""
        assert self._process is not None, "the operator was not started"
        return self._process

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process is not None and self._process.running

    def start(self, **settings: str) -> None:
        """Start it and return at once. ``settings`` beside the defaults: capitals, without their prefix."""
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/metrics"
        more = {f"TICKKEEPER_{name}": value for name, value in settings.items()}
        env = self._inherited | self._settings | {"TICKKEEPER_HTTP_PORT": str(port)} | more
        self._process = Process([_PROGRAM, "operator"], log=self.log, cwd=self._folder, env=env)
        self._process.start()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that does not help. Idempotent."""
        if self._process is not None:
            self._process.stop(seconds=15)

    def cpu_seconds(self) -> float:
        """User and system time since its start."""
        return cpu_seconds(self.process.pid)

    def rss_mb(self) -> float:
        """Resident memory in MiB."""
        return rss_mb(self.process.pid)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that bear ``labels``; 0 where there are none, or it does not answer yet."""
        try:
            with urllib.request.urlopen(self._url, timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return 0.0
        return sum_of(text, name, labels)

    def api_writes(self) -> float:
        """Statuses and events written since its start, by its own count."""
        return self.metric("tickkeeper_api_writes_total")

    def log_tail(self, characters: int = 2_000) -> str:
        """The end of its log."""
        with suppress(OSError):
            return self.log.read_text(encoding="utf-8", errors="replace")[-characters:]
        return ""


def sum_of(text: str, name: str, labels: Mapping[str, str | tuple[str, ...]]) -> float:
    """The sum over the samples of ``name`` in a Prometheus text; a tuple of values means any of them."""
    total = 0.0
    for family in text_string_to_metric_families(text):
        if not name.startswith(family.name):
            continue
        for sample in family.samples:
            if sample.name == name and all(_is(sample.labels.get(key), value) for key, value in labels.items()):
                total += sample.value
    return total


def _is(found: str | None, wanted: str | tuple[str, ...]) -> bool:
    return found in wanted if isinstance(wanted, tuple) else found == wanted
