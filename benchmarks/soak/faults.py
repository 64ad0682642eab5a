"""The faults. Each does its harm, returns once that is over, and says what it did."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.lab import harm
from benchmarks.lab.partner import Partner
from benchmarks.lab.schedules import PREFIX, Schedule
from benchmarks.lab.stage import Stage

_MINUTE_MS = 60_000
_HOUR = 3_600.0


@dataclass(slots=True)
class Ground:
    """Where the faults happen. Targets come in turn, so that no schedule is fought over more often than the operator's
    back-off against fighting writers puts up with."""

    stage: Stage
    bare: Partner
    dice: random.Random
    _turn: list[Schedule] = field(default_factory=list)

    def target(self) -> Schedule:
        """The next schedule to harm."""
        if not self._turn:
            self._turn = list(self.stage.wanted)
            self.dice.shuffle(self._turn)
        return self._turn.pop()


def zrem(ground: Ground) -> str:
    """ZREM: its entry goes, its hash and its next job stay."""
    target = ground.target()
    ground.stage.client.zrem(_repeat(target), target.id)
    return target.name


def delete_key(ground: Ground) -> str:
    """DEL of any one key, each sort as likely as another: most keys are finished jobs, and nobody needs them."""
    sorts: dict[str, list[str]] = defaultdict(list)
    for key in ground.stage.client.scan_iter(f"{PREFIX}:*", count=1000):
        sorts[_sort(key)].append(key)
    if not sorts:
        return "nothing: Redis was empty"
    key = ground.dice.choice(sorted(sorts[ground.dice.choice(sorted(sorts))]))
    ground.stage.client.delete(key)
    return key


def flushall(ground: Ground) -> str:
    """FLUSHALL: everything goes."""
    ground.stage.client.flushall()
    return ""


def restart(ground: Ground) -> str:
    """SIGKILL; a new and empty server on the same port up to two seconds later."""
    ground.stage.redis.kill()
    down = ground.dice.uniform(0, 2)
    time.sleep(down)
    ground.stage.redis.start()
    return f"down {down:.1f} s"


def freeze(ground: Ground) -> str:
    """SIGSTOP for up to six seconds: connections stay open, nothing answers."""
    seconds = ground.dice.uniform(0.5, 6)
    harm.last(seconds, ground.stage.redis.freeze, ground.stage.redis.thaw)
    return f"{seconds:.1f} s"


def client_kill(ground: Ground) -> str:
    """CLIENT KILL of every connection but this one, with one removal that the change feed cannot tell of."""
    target = ground.target()
    pipe = ground.stage.client.pipeline(transaction=False)
    pipe.client_kill_filter(_type="normal", skipme=True)
    pipe.zrem(_repeat(target), target.id)
    pipe.execute()
    return target.name


def maxmemory(ground: Ground) -> str:
    """No memory for one to three seconds: every write is refused."""
    client, seconds = ground.stage.client, ground.dice.uniform(1, 3)
    harm.last(seconds, lambda: client.config_set("maxmemory", 1), lambda: client.config_set("maxmemory", 0))
    return f"{seconds:.1f} s"


def clock_ahead(ground: Ground) -> str:
    """Another writer whose clock is hours ahead registers it anew, with an application's data or with ours."""
    target, hours = ground.target(), ground.dice.uniform(1, 48)
    ours = ground.dice.random() < 0.5
    if ours:
        ground.stage.client.zrem(_repeat(target), target.id)
    _driver(ground, target, every_ms=target.every_ms or _MINUTE_MS, ahead_seconds=hours * _HOUR, keep=ours)
    whose = "our" if ours else "an application's"
    return f"{target.name}, {hours:.0f} h, {whose} data"


def foreign_upsert(ground: Ground) -> str:
    """An application registers its own clock under the same id: another interval, no stamp."""
    target = ground.target()
    every_ms = ground.dice.choice((500, 3_000, 3_600_000))
    _driver(ground, target, every_ms=every_ms)
    return f"{target.name}, every {every_ms} ms"


def foreign_removal(ground: Ground) -> str:
    """An application's last replica stops and takes the scheduler with it."""
    target = ground.target()
    ground.bare.ask({"do": "driver_remove", "queue": target.queue, "scheduler_id": target.id})
    return target.name


def operator_kill(ground: Ground) -> str:
    """SIGKILL of the operator; what is removed meanwhile, the next one must find."""
    ground.stage.operator.kill()
    names = [zrem(ground) for _ in range(3)]
    ground.stage.operator.start()
    return ", ".join(names)


#: By name, with how often each comes among a hundred. Those that wipe everything leave the others nothing to harm.
FAULTS: dict[str, tuple[Callable[[Ground], str], int]] = {
    "ZREM": (zrem, 15),
    "DEL of a key": (delete_key, 25),
    "FLUSHALL": (flushall, 8),
    "restart": (restart, 8),
    "SIGSTOP": (freeze, 6),
    "CLIENT KILL": (client_kill, 8),
    "MAXMEMORY": (maxmemory, 6),
    "clock-ahead writer": (clock_ahead, 8),
    "foreign upsert": (foreign_upsert, 8),
    "foreign removal": (foreign_removal, 5),
    "operator SIGKILL": (operator_kill, 3),
}


def sequence(dice: random.Random) -> Iterator[str]:
    """Their names for ever."""
    return harm.sequence(dice, {name: weight for name, (_, weight) in FAULTS.items()})


def _driver(ground: Ground, target: Schedule, **more: object) -> None:
    ground.bare.ask({"do": "driver_upsert", "queue": target.queue, "scheduler_id": target.id, **more})


def _repeat(schedule: Schedule) -> str:
    return f"{PREFIX}:{schedule.queue}:repeat"


def _sort(key: str) -> str:
    """What sort of key it is: ``repeat``, ``delayed``, ``meta`` …, a scheduler's hash, or a job's."""
    _, _, rest = key.split(":", 2)
    head, *more = rest.split(":")
    if head == "repeat" and more:
        return "job" if len(more) > 1 else "hash"
    return head
