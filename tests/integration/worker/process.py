"""``tickkeeper worker`` as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-c", "from tickkeeper.cli import main; main()", "worker")


class Worker:
    """One process, its log lines, its effects."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "worker.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TICKKEEPER_")}
        self.environment = {
            **inherited,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "operator"))),
            "TICKKEEPER_HTTP_PORT": "0",
            "TICKKEEPER_LOG_LEVEL": "debug",
            **environment,
        }
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                COMMAND, env=self.environment, stdout=log, stderr=log, cwd=folder, start_new_session=True
            )

    @property
    def text(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]

    def wait_for(self, condition: Any, seconds: float = 20.0) -> None:
        """Wait until ``condition()`` or, for a text, until such an event is logged."""
        held = (lambda: self.events(condition)) if isinstance(condition, str) else condition
        deadline = time.monotonic() + seconds
        while not held():
            assert time.monotonic() < deadline, f"not within {seconds} s: {condition}\n{self.text[-4000:]}"
            assert self.popen.poll() is None or held(), f"ended with {self.popen.poll()}:\n{self.text[-4000:]}"
            time.sleep(0.02)

    def terminate(self, number: int = signal.SIGTERM) -> None:
        self.popen.send_signal(number)

    def exit(self, seconds: float) -> int:
        return self.popen.wait(seconds)

    @property
    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.popen.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")


@contextmanager
def worker_process(folder: Path, *, redis: str, database: str, **settings: str) -> Iterator[Worker]:
    """A running worker, killed at the end if it still runs. ``settings`` without their prefix, in capitals."""
    worker = Worker(
        folder,
        {
            "TICKKEEPER_REDIS_URL": redis,
            "TICKKEEPER_DATABASE_URL": database,
            "TICKKEEPER_HANDLERS": "tests.integration.worker.app",
            "EFFECTS": str(effects_file(folder)),
            **{f"TICKKEEPER_{name}": value for name, value in settings.items()},
        },
    )
    try:
        yield worker
    finally:
        worker.popen.kill()
        worker.popen.wait()


def effects_file(folder: Path) -> Path:
    """Where the workers of one test write their effects: beside the folders of the single workers."""
    return folder.parent / "effects"


def effects(folder: Path) -> list[str]:
    """What the workers of one test have done, in order; ``folder`` is the one of any of them."""
    file = effects_file(folder)
    return file.read_text().splitlines() if file.exists() else []


def enqueue(database: str, kind: str, *payloads: dict[str, Any], tenant: str = "acme", max_attempts: int = 20) -> None:
    """Put rows into the outbox by its SQL function."""
    statement = "SELECT tickkeeper.enqueue(%s, %s, %s, max_attempts => %s)"
    with psycopg.connect(database, autocommit=True) as connection:
        for payload in payloads:
            connection.execute(statement, (tenant, kind, Jsonb(payload), max_attempts))


def rows(database: str, columns: str = "id, attempts, lease_id IS NOT NULL", table: str = "outbox") -> list[Any]:
    """What is in the outbox."""
    with psycopg.connect(database, autocommit=True) as connection:
        return connection.execute(f"SELECT {columns} FROM tickkeeper.{table} ORDER BY id").fetchall()
