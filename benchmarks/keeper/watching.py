"""From the start of a process to when it knows every resource: the operator's, and a bare kopf handler's."""

import sys
import time
from pathlib import Path

from benchmarks.lab.monitor import Looks
from benchmarks.lab.partner import Partner
from benchmarks.lab.processes import cpu_seconds
from benchmarks.lab.stage import Stage

_PATIENCE = 180.0
_SCRIPT = Path(__file__).with_name("bare_watch.py")


def start_and_check(stage: Stage) -> tuple[float, float]:
    """Start the operator; the seconds until it has looked at every scheduler, and its CPU for that.

    Redis says what is looked at (MONITOR), so that the operator's own word is not needed.
    """
    with Looks(stage.redis.port, (schedule.id for schedule in stage.wanted)) as looks:
        started = time.monotonic()
        stage.operator.start()
        stage.until(looks.complete.is_set, _PATIENCE, "every scheduler looked at", look=0.005)
        return time.monotonic() - started, stage.operator.cpu_seconds()


def start_bare_watch(stage: Stage) -> tuple[float, float]:
    """The same for a process that only watches with kopf and keeps what it is told in a table."""
    started = time.monotonic()
    argv: list[str | Path] = [sys.executable, _SCRIPT, str(stage.kube.kubeconfig), str(len(stage.wanted))]
    with Partner(argv, log=stage.folder / "bare_watch.log") as watch:
        watch.hear(seconds=_PATIENCE)
        return time.monotonic() - started, cpu_seconds(watch.pid)
