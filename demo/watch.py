"""What is to be seen in Redis: which schedulers there are, every 2 ms, and every tick that a worker has finished."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import redis

LOOK_SECONDS = 0.002
QUEUE = "ticks"
KEYS = f"bull:{QUEUE}:"
_PENDING: dict[str, Callable[..., Any]] = {
    "delayed": redis.Redis.zrange,
    "prioritized": redis.Redis.zrange,
    "wait": redis.Redis.lrange,
    "paused": redis.Redis.lrange,
    "active": redis.Redis.lrange,
}
_FIELDS = ("rjk", "data", "finishedOn", "returnvalue", "failedReason")


@dataclass(frozen=True, slots=True)
class Tick:
    """A finished tick: of which scheduler, when it was due and when it was done (epoch seconds), with what data."""

    scheduler: str
    slot: float
    done: float
    data: dict[str, Any]
    result: dict[str, Any]
    failed: str | None = None

    @property
    def tenant(self) -> str:
        """Whose outbox it drained."""
        return str(self.data.get("tenantId"))


@dataclass(frozen=True, slots=True)
class Look:
    """From ``at`` on Redis held these schedulers; None: it did not answer."""

    at: float
    schedulers: frozenset[str] | None

    def has(self, scheduler: str) -> bool:
        """Whether the scheduler was there."""
        return self.schedulers is not None and scheduler in self.schedulers


class Watch:
    """Looks from a thread of its own until closed. ``looks`` are the changes; ``ticks`` every tick, oldest first."""

    def __init__(self, connect: Callable[[], redis.Redis]) -> None:
        self._client = connect()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._end = threading.Event()
        self._since = 0.0
        self._known: set[str] = set()
        self.looks: list[Look] = [Look(0.0, frozenset())]
        self.ticks: list[Tick] = []
        self._times: deque[tuple[float, float]] = deque(maxlen=20_000)
        #: when the newest look began
        self.looked = 0.0
        #: what ended the thread, if anything did
        self.fault: Exception | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no longer. Idempotent."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def ticks_of(self, scheduler: str, *, since: float = 0.0) -> list[Tick]:
        """Its ticks that were done after ``since``, failed ones left out."""
        return [
            tick for tick in tuple(self.ticks) if tick.scheduler == scheduler and tick.done > since and not tick.failed
        ]

    def back(self, scheduler: str, *, since: float) -> float | None:
        """When the scheduler was there again, if a look that began after ``since`` has seen it; else None."""
        looked = self.looked  # before the look itself, which may become newer meanwhile but not older
        last = self.looks[-1]
        if looked <= since or not last.has(scheduler):
            return None
        return last.at if last.at > since else looked  # the loss was too short to be seen: then by now

    def lost(self, scheduler: str, *, since: float) -> float | None:
        """When the scheduler was first seen missing after ``since``; None: it was not."""
        return next((look.at for look in tuple(self.looks) if look.at > since and not look.has(scheduler)), None)

    def longest_pause(self, *, since: float) -> float:
        """The longest time from one look to the end of the next: a shorter loss can have been overlooked."""
        times = [look for look in tuple(self._times) if look[0] >= since]
        return max((ended - began for (began, _), (_, ended) in pairwise(times)), default=0.0)

    def answered(self, *, since: float) -> float | None:
        """When Redis answered first after it had been away since ``since``; None: it has not."""
        away = False
        for look in tuple(self.looks):
            if look.at > since and look.schedulers is None:
                away = True
            elif away and look.schedulers is not None:
                return look.at
        return None

    def _run(self) -> None:
        try:
            while not self._end.wait(LOOK_SECONDS):
                self._look()
        except Exception as error:  # noqa: BLE001 - told to whoever waits for something to be seen
            self.fault = error

    def _look(self) -> None:
        began = time.time()
        try:
            there, done, failed = self._ask()
            self._note(Look(began, frozenset(there)))
            self._take(done)
            self._take(failed)
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            self._note(Look(began, None))
        self._times.append((began, time.time()))
        self.looked = began

    def _ask(self) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            pipe.zrange(f"{KEYS}repeat", 0, -1)
            for place in ("completed", "failed"):
                # From the newest on, itself included: two can be done in one millisecond.
                pipe.zrangebyscore(f"{KEYS}{place}", self._since, "+inf", withscores=True)
            return pipe.execute()

    def _note(self, look: Look) -> None:
        if look.schedulers != self.looks[-1].schedulers:
            self.looks.append(look)

    def _take(self, found: Iterable[tuple[str, float]]) -> None:
        for id_, score in found:
            if id_ in self._known:
                continue
            fields: Any = self._client.hmget(f"{KEYS}{id_}", *_FIELDS)
            self._known.add(id_)
            self._since = max(self._since, score)
            if tick := read_tick(id_, fields):
                self.ticks.append(tick)


def read_tick(id_: str, fields: Sequence[str | None]) -> Tick | None:
    """A finished job's hash as a tick; None where it was wiped meanwhile, or no scheduler made it."""
    scheduler, data, done, result, failed = fields
    if scheduler is None or data is None or done is None:
        return None
    slot = int(id_.rpartition(":")[2]) / 1000
    returned = json.loads(result) if result else None
    return Tick(
        scheduler=scheduler,
        slot=slot,
        done=int(done) / 1000,
        data=json.loads(data),
        result=returned if isinstance(returned, dict) else {},
        failed=failed,
    )


def missed(ticks: Sequence[Tick], every_seconds: float) -> int:
    """How many slots between the first and the last of one scheduler's ticks saw none."""
    slots = {round(tick.slot * 1000) for tick in ticks}
    return round((max(slots) - min(slots)) / 1000 / every_seconds) + 1 - len(slots)


def on_its_slots(ticks: Sequence[Tick], every_seconds: float) -> bool:
    """Whether each tick was due a whole number of intervals after the first: the phase was kept, to the millisecond."""
    return all(round((tick.slot - ticks[0].slot) * 1000) % round(every_seconds * 1000) == 0 for tick in ticks)


def leftovers(client: redis.Redis, scheduler: str) -> list[str]:
    """What of a scheduler could still tick: its entry, its hash, its pending jobs."""
    left = ["its entry"] if client.zscore(f"{KEYS}repeat", scheduler) is not None else []
    if client.exists(f"{KEYS}repeat:{scheduler}"):
        left.append("its hash")
    for place, read in _PENDING.items():
        jobs: Any = read(client, f"{KEYS}{place}", 0, -1)
        left += [f"{job} in {place}" for job in jobs if job.startswith(f"repeat:{scheduler}:")]
    return left
