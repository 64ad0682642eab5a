"""FLUSHALL, and how long until everything is registered again; the floor just before."""

import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.keeper.floor import Floor
from benchmarks.lab.processes import load
from benchmarks.lab.stage import Stage
from benchmarks.lab.truth import lasting_faults
from embedded.errors import PartFailed


@dataclass(frozen=True, slots=True)
class Wipe:
    """Seconds: when it was (epoch), until all were registered, bare upserts of as many, the operator's CPU."""

    at: float
    healed: float
    floor: float
    cpu: float
    load: float

    @property
    def raw(self) -> dict[str, Any]:
        """For the file of raw figures."""
        return asdict(self)


def wipe(stage: Stage, floor: Floor) -> Wipe:
    """One of both. Raises PartFailed when what is registered again is not right."""
    bare = floor.seconds(len(stage.wanted))
    time.sleep(1)
    pressure = load()
    cpu = stage.operator.cpu_seconds()
    at, started = time.time(), time.monotonic()
    stage.client.flushall()
    healed = stage.until_registered(started)
    cpu = stage.operator.cpu_seconds() - cpu
    if wrong := lasting_faults(stage.client, stage.wanted):
        raise PartFailed(f"{len(wrong)} were registered again, but not as they must be: {next(iter(wrong.items()))}")
    return Wipe(at, healed, bare, cpu, pressure)
