"""What the operator uses while nothing happens but ticks."""

import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.lab.partner import Partner
from benchmarks.lab.processes import load
from benchmarks.lab.stage import Stage


@dataclass(frozen=True, slots=True)
class Usage:
    """One window: CPU in percent of a core, memory at its end in MiB, API writes by the operator's and by the API
    server's count, ticks that the worker took."""

    seconds: float
    cpu_percent: float
    rss_mb: float
    api_writes_told: float
    api_writes_served: float
    ticks_a_second: float
    load: float

    @property
    def api_writes(self) -> float:
        """The larger of both counts."""
        return max(self.api_writes_told, self.api_writes_served)

    @property
    def raw(self) -> dict[str, Any]:
        """For the file of raw figures."""
        return asdict(self)


def usage(stage: Stage, worker: Partner, seconds: float) -> Usage:
    """Watch for so long. The counters are read outside of the time that counts for CPU."""
    told, served = stage.operator.api_writes(), stage.api_writes_served()
    worker.ask({"do": "mark"})
    cpu, started = stage.operator.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    cpu, took = stage.operator.cpu_seconds() - cpu, time.monotonic() - started
    seen = worker.ask({"do": "report"})
    return Usage(
        seconds=took,
        cpu_percent=100 * cpu / took,
        rss_mb=stage.operator.rss_mb(),
        api_writes_told=stage.operator.api_writes() - told,
        api_writes_served=stage.api_writes_served() - served,
        ticks_a_second=1000 * seen["ticks"] / (seen["until"] - seen["since"]),
        load=load(),
    )
