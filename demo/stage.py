"""What every scene uses: the parts, what is observed, and waiting that gives up with a reason."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import redis

from demo.cluster import kubectl
from demo.database import Delivered
from demo.parts import Parts
from demo.watch import KEYS, LOOK_SECONDS, Tick, Watch
from tickkeeper.schedules.identity import derive_scheduler_id

T = TypeVar("T")

JOB_NAME = "drain"
#: Seconds that anything may take before the demo says that it failed; all of it takes a fraction of that.
PATIENCE = 30.0


class SceneFailed(Exception):
    """Something was not seen that must be; the message says what."""


@dataclass(slots=True)
class Schedule:
    """One TickSchedule of the demo, and the scheduler that it must be in Redis."""

    name: str
    every: float  # seconds

    @property
    def id(self) -> str:
        """Its scheduler id."""
        return derive_scheduler_id(JOB_NAME, self.name)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a scene came to, in words. ``back``, ``tick``: how long after the fault it was back, and ticked."""

    text: str
    back: str = ""
    tick: str = ""


class Stage:
    """The demo's running parts and two tenants; named after their resources."""

    def __init__(self, parts: Parts, watch: Watch, client: redis.Redis) -> None:
        self.parts = parts
        self.watch = watch
        self.redis = client
        self.acme = Schedule("acme", 1.0)
        self.globex = Schedule("globex", 2.0)
        #: as the resource's status counted them last
        self.heals = 0
        self._operator_away = False

    def wait(self, what: str, condition: Callable[[], T | None], seconds: float = PATIENCE) -> T:
        """The first answer that is neither None nor False; SceneFailed when there is none in time."""
        deadline = time.monotonic() + seconds
        while True:
            answer = condition()
            if answer is not None and answer is not False:
                return answer
            self._check_parts()
            if time.monotonic() > deadline:
                raise SceneFailed(f"{what}: not within {seconds:g} s")
            time.sleep(LOOK_SECONDS)

    def check(self, holds: object, what: str) -> None:
        """SceneFailed with ``what`` unless it holds."""
        if not holds:
            raise SceneFailed(what)

    def after_a_tick(self, schedule: Schedule) -> Tick:
        """Wait for its next tick and return it: a fault right after it leaves a whole interval to heal in."""
        began = time.time()
        return self.ticks(schedule, 1, since=began)[0]

    def ticks(self, schedule: Schedule, count: int, *, since: float) -> list[Tick]:
        """Its first ``count`` ticks that were done after ``since``."""

        def enough() -> list[Tick] | None:
            done = self.watch.ticks_of(schedule.id, since=since)
            return done[:count] if len(done) >= count else None

        return self.wait(f"{count} ticks of {schedule.id}", enough)

    def back(self, schedule: Schedule, *, since: float) -> float:
        """When its scheduler was in Redis again."""
        return self.wait(f"{schedule.id} back in Redis", lambda: self.watch.back(schedule.id, since=since))

    def delivered(self, ids: list[int], tenant: str) -> Delivered:
        """When these rows were delivered, all of them, to this tenant."""
        database = self.parts.database

        def all_of_them() -> Delivered | None:
            found = database.delivered(ids)
            self.check(found.tenants <= {tenant}, f"rows of {tenant} were delivered as {sorted(found.tenants)}")
            return found if found.rows == len(ids) else None

        return self.wait(f"{len(ids)} rows of {tenant} delivered", all_of_them)

    def kubectl(self, *args: str) -> str:
        """What kubectl prints; PartFailed with its error."""
        return kubectl(self.parts.cluster, *args)

    def hash_field(self, schedule: Schedule, name: str) -> Any:
        """One field of the scheduler's own hash in Redis."""
        return self.redis.hget(f"{KEYS}repeat:{schedule.id}", name)

    def kill_operator(self) -> None:
        """SIGKILL."""
        self._operator_away = True
        self.parts.operator.kill()

    def start_operator(self) -> None:
        """Start it anew."""
        self.parts.operator.start()
        self._operator_away = False

    def _check_parts(self) -> None:
        if self.watch.fault is not None:
            raise SceneFailed(f"Redis cannot be watched any more: {self.watch.fault!r}")
        for program in self.parts.programs:
            if not program.running and not (self._operator_away and program is self.parts.operator):
                raise SceneFailed(f"tickkeeper {program.name} has ended")
