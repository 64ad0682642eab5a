"""A Redis, a PostgreSQL with an outbox, and workers."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis as Client

from benchmarks.lab.standing import Standing
from benchmarks.outbox import table
from benchmarks.outbox.ticks import Tick, Ticks
from benchmarks.outbox.worker import Worker
from embedded.errors import PartFailed
from embedded.postgres import Postgres
from embedded.process import make_folder, remove_folder
from embedded.redis import Redis

_PROGRAM = Path(sys.executable).with_name("tickkeeper")
_DRAIN_SECONDS = 900.0
#: The same server for all that is measured: enough memory for what is drained, no checkpoint on the way.
_POSTGRES: dict[str, str | int | bool] = {"shared_buffers": "256MB", "max_wal_size": "8GB"}


@dataclass(frozen=True, slots=True)
class Drained:
    """``seconds`` from the first tick's begin to the last one's end."""

    rows: int
    seconds: float
    ticks: list[Tick]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def raw(self) -> dict[str, Any]:
        """For the file of raw figures."""
        return {"rows": self.rows, "seconds": self.seconds, "ticks": [tick.result for tick in self.ticks]}


class Stage(Standing):
    """All of it, on this machine. ``with`` starts the servers and creates the outbox."""

    def __init__(self, **postgres: str | int | bool) -> None:
        """Describe it; ``postgres``: settings of the server beside the usual."""
        super().__init__()
        self.folder = make_folder("bench")
        self.redis = Redis()
        self.postgres = Postgres(fsync=True, settings=_POSTGRES | postgres)
        self.dsn: str
        self.client: Client
        self.connection: table.Connection
        self.ticks: Ticks
        self.workers: list[Worker] = []

    def _put_up(self) -> None:
        self._stack.callback(remove_folder, self.folder)
        self._start(self.redis, self.postgres)
        self.client = self._stack.enter_context(self.redis.client())
        self.dsn = self.postgres.create_database("bench")
        migrate(self.dsn)
        self.connection = self._stack.enter_context(table.connect(self.dsn))
        self.ticks = Ticks(self.redis.url, self.client)

    def _explain(self) -> None:
        for worker in self.workers:
            print(f"a worker's log ends in:\n{worker.log_tail()}", file=sys.stderr)

    def worker(self, handlers: str, *, dsn: str | None = None, **settings: str) -> Worker:
        """Start one with a module of benchmarks.outbox.apps; ``settings`` in capitals, without their prefix."""
        folder = make_folder("worker", parent=self.folder)
        given = {"HANDLERS": f"benchmarks.outbox.apps.{handlers}", "CONCURRENCY": "1", "TIME_BUDGET_SECONDS": "3600"}
        more = {"BENCH_RECORDS": str(self.records)}
        worker = Worker(
            folder, redis_url=self.redis.url, database_url=dsn or self.dsn, settings=given | settings, more=more
        )
        self.workers.append(worker)
        self._stack.callback(worker.kill)
        worker.start()
        return worker

    def end(self, worker: Worker) -> None:
        """Stop one of them as a deployment does."""
        worker.stop()
        self.workers.remove(worker)

    @property
    def records(self) -> Path:
        """The folder where handlers write what they have seen."""
        folder = self.folder / "records"
        folder.mkdir(exist_ok=True)
        return folder

    def alive(self) -> None:
        """Raises PartFailed when a worker has ended."""
        for worker in self.workers:
            worker.check()

    def drain(self, rows: int, tenants: Sequence[str] = (table.TENANT,)) -> Drained:
        """Have the outbox drained by one tick for each of ``tenants``; PartFailed unless all rows are delivered."""
        ids = self.ticks.add(tenants)
        ticks = self.ticks.results(ids, seconds=_DRAIN_SECONDS, alive=self.alive)
        return self.drained(rows, ticks)

    def drained(self, rows: int, ticks: list[Tick]) -> Drained:
        """The figure of ticks that are over. Raises PartFailed where rows are missing."""
        done, left, dead = sum(tick.done for tick in ticks), table.left(self.connection), table.dead(self.connection)
        if done != rows or left or dead:
            raise PartFailed(f"of {rows} rows {done} were delivered, {left} are left and {dead} dead")
        seconds = (max(tick.ended for tick in ticks) - min(tick.began for tick in ticks)) / 1000
        return Drained(rows, max(seconds, 0.001), ticks)


def migrate(dsn: str) -> None:
    """Create the outbox, by the command that a user would use."""
    env = os.environ | {"TICKKEEPER_DATABASE_URL": dsn}
    done = subprocess.run([_PROGRAM, "outbox", "migrate"], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PartFailed(f"tickkeeper outbox migrate (exit {done.returncode}): {done.stderr.strip()[-500:]}")
