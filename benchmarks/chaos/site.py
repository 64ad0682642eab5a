"""Where it happens: a Redis, a PostgreSQL behind a proxy, three workers, a receiver, a producer, and the ticks."""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chaos.producer import TENANTS, Producer
from benchmarks.chaos.receiver import Receiver
from benchmarks.lab.standing import Standing
from benchmarks.outbox import table
from benchmarks.outbox.stage import Stage
from benchmarks.outbox.ticks import PREFIX, QUEUE
from benchmarks.outbox.worker import Worker
from embedded.process import make_folder
from embedded.proxy import Proxy

WORKERS = 3
EVERY_MS = 200

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_CLOCK_SLACK_MS = 10_000
#: Short, so that what a dead worker held is taken up again while the harm goes on.
_WORKER = {
    "HANDLERS": "benchmarks.chaos.handlers",
    "CONCURRENCY": "3",
    "LEASE_SECONDS": "4",
    "LOCK_DURATION_MS": "4000",
    "STALLED_INTERVAL_MS": "4000",
    "MAX_STALLED_COUNT": "1000",
    "BATCH_SIZE": "50",
}


class Slot:
    """The place of one worker: its processes follow one another, its clock and its log stay."""

    def __init__(self, site: "Site", number: int) -> None:
        """Nothing is started."""
        self._site = site
        self.number = number
        self._folder = make_folder("chaos-worker", parent=site.stage.folder)
        self._clock = self._folder / "clock"
        self._process: Worker | None = None
        #: processes that ended without having been told to
        self.ended = 0

    @property
    def worker(self) -> Worker:
        """The process that was started last."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start a process, and do not wait for it: the database may be away."""
        path = os.pathsep.join(map(str, (_HERE / "clock", _ROOT, _ROOT / "operator")))
        self._process = Worker(
            self._folder,
            redis_url=self._site.stage.redis.url,
            database_url=self._site.dsn,
            settings=_WORKER | {"ROUTES": str(self._site.routes)},
            more={"PYTHONPATH": path, "CHAOS_CLOCK": str(self._clock)},
        )
        self._process.start(ready=False)

    def step(self, seconds: float) -> None:
        """Set its clock ahead, or back, of everybody else's."""
        self._clock.write_text(str(seconds))

    def keep(self) -> None:
        """Start another process where the last has ended by itself."""
        if self._process is not None and not self._process.running:
            self.ended += 1
            self.start()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()


class Site(Standing):
    """All of it. ``with`` starts it."""

    def __init__(self, dice: random.Random) -> None:
        """Describe it."""
        super().__init__()
        self.dice = dice
        self.stage = Stage()
        self.proxy: Proxy
        self.receiver = Receiver()
        self.producer: Producer
        self.slots: list[Slot] = []

    def _put_up(self) -> None:
        self._stack.enter_context(self.stage)
        self.stage.connection.execute((_HERE / "schema.sql").read_text(encoding="utf-8").encode())
        self.proxy = self._stack.enter_context(Proxy(self.stage.postgres.port))
        self.receiver.start()
        self._stack.callback(self.receiver.close)
        self.routes.write_text(json.dumps({"routes": [{"kinds": "hook.*", "url": self.receiver.url}]}))
        self.slots = [Slot(self, number) for number in range(WORKERS)]
        for slot in self.slots:
            self._stack.callback(slot.kill)
            slot.start()
        self.tend()
        self.producer = Producer(self.stage.dsn, random.Random(self.dice.random()))
        self.producer.start()

    @property
    def dsn(self) -> str:
        """The database as the workers reach it: through the proxy."""
        return self.stage.dsn.replace(f":{self.stage.postgres.port}/", f":{self.proxy.port}/")

    @property
    def routes(self) -> Path:
        """The routes file."""
        return self.stage.folder / "routes.json"

    def tend(self) -> None:
        """What the operator does: every schedule is registered, and none far in the future by a wrong clock."""
        latest = time.time() * 1000 + EVERY_MS + _CLOCK_SLACK_MS
        for number, tenant in enumerate(TENANTS):
            due = self.stage.client.zscore(f"{PREFIX}:{QUEUE}:repeat", tenant)
            if due is not None and float(str(due)) > latest:
                self.stage.ticks.unschedule(tenant)
            # One with Allow: its ticks overlap, and both workers claim from one tenant.
            self.stage.ticks.schedule(tenant, every_ms=EVERY_MS, policy="Allow" if number == 0 else "Forbid")

    def admin(self) -> table.Connection:
        """A connection of our own, not through the proxy; it commits each statement. Close it."""
        return table.connect(self.stage.dsn)

    def wait(self, seconds: float, condition: Callable[[], Any] | None = None) -> bool:
        """Let so much time pass, tending workers and ticks; until ``condition`` holds, where there is one."""
        deadline = time.monotonic() + seconds
        tended = 0.0
        while time.monotonic() < deadline:
            if condition is not None and condition():
                return True
            for slot in self.slots:
                slot.keep()
            if time.monotonic() - tended > 2:
                self.tend()
                tended = time.monotonic()
            time.sleep(0.1)
        return False
