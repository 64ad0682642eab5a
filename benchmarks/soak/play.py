"""One fault after another, sometimes two at once, and how long until every scheduler is right again."""

import random
import time
from dataclasses import dataclass

from redis import RedisError

from benchmarks.lab.partner import Partner
from benchmarks.lab.progress import say
from benchmarks.lab.stage import Stage
from benchmarks.lab.truth import lasting_faults
from benchmarks.soak.faults import FAULTS, Ground, sequence

#: How long a fault may take to heal before the next one comes all the same.
_PATIENCE = 120.0
_LOOK = 0.02
#: How often the next fault does not wait for the healing of the last.
_ON_TOP = 0.15
_TELL_EVERY = 60.0
#: What the last ticks are given beyond the longest interval.
_LAST_TICKS = 60.0
_MINUTE = 60.0


@dataclass(slots=True)
class Fault:
    """One that was done. Seconds: ``at`` since the start, ``healed`` since its end; None while it is not."""

    kind: str
    what: str
    at: float
    ended: float
    healed: float | None = None
    #: another came before it was healed: the time is that of the slower one
    together: bool = False
    #: what was still wrong when patience ended
    left: str = ""


def play(stage: Stage, bare: Partner, *, minutes: float, dice: random.Random) -> list[Fault]:
    """Do harm for so long. The stage is settled before, and left alone when this returns."""
    ground = Ground(stage, bare, dice)
    kinds = sequence(dice)
    started = told = time.monotonic()
    done: list[Fault] = []
    waiting: list[Fault] = []
    while time.monotonic() - started < minutes * _MINUTE:
        fault = _do(next(kinds), ground, started)
        done.append(fault)
        waiting.append(fault)
        if dice.random() < _ON_TOP:
            time.sleep(dice.uniform(0, 0.3))
            continue
        _until_healed(stage, waiting)
        waiting = []
        if time.monotonic() - told > _TELL_EVERY:
            told = time.monotonic()
            say(f"{len(done)} faults so far, the last: {fault.kind} ({fault.what})")
        time.sleep(min(3.0, dice.expovariate(1.5)))
    _until_healed(stage, waiting)
    return done


def silent(stage: Stage, worker: Partner) -> dict[str, str]:
    """The schedules that do not tick any more, with what is wrong with each as far as Redis tells."""
    worker.ask({"do": "mark"})
    longest = max(schedule.every_ms / 1000 or _MINUTE for schedule in stage.wanted)
    deadline = time.monotonic() + longest + _LAST_TICKS
    missing = list(stage.wanted)
    while missing and time.monotonic() < deadline:
        time.sleep(0.5)
        seen = worker.ask({"do": "report"})["last"]
        missing = [schedule for schedule in stage.wanted if f"{schedule.queue}/{schedule.id}" not in seen]
    wrong = lasting_faults(stage.client, stage.wanted)
    return {each.name: wrong.get(each.name, "registered as it must be") for each in missing}


def _do(kind: str, ground: Ground, started: float) -> Fault:
    at = time.monotonic()
    what = FAULTS[kind][0](ground)
    return Fault(kind, what, at - started, time.monotonic() if _lasts(kind) else at)


def _lasts(kind: str) -> bool:
    """Whether it is an outage, during which nothing can heal."""
    return kind in ("restart", "SIGSTOP", "MAXMEMORY", "operator SIGKILL")


def _until_healed(stage: Stage, faults: list[Fault]) -> None:
    for fault in faults:
        fault.together = len(faults) > 1
    deadline = time.monotonic() + _PATIENCE
    while True:
        looked = time.monotonic()
        wrong = _wrong(stage)
        if not wrong:
            for fault in faults:
                fault.healed = max(0.0, looked - fault.ended)
            return
        if looked > deadline:
            left = "; ".join(f"{name}: {why}" for name, why in list(wrong.items())[:3])
            say(f"not healed within {_PATIENCE:g} s after {faults[-1].kind} ({faults[-1].what}): {left}")
            for fault in faults:
                fault.left = left
            return
        time.sleep(_LOOK)


def _wrong(stage: Stage) -> dict[str, str]:
    try:
        return lasting_faults(stage.client, stage.wanted)
    except RedisError as error:
        return {"Redis": str(error)}
