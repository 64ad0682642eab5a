"""How late ticks are taken up, by BullMQ's own record of each job, on an idle machine and beside a busy core."""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median, percentile
from benchmarks.lab.partner import Partner
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage
from benchmarks.outbox.ticks import PREFIX, QUEUE, Tick
from embedded.errors import PartFailed
from embedded.node import NodeProject, find_node
from embedded.process import Process, make_folder

_ROOT = Path(__file__).resolve().parents[3]
_NODE = _ROOT / "benchmarks" / "lab" / "node"
_TENANT = "acme"
_BUSY = "while True: pass"
#: So many intervals after a registration belong to the start.
_START = 5
_WHO = ("tickkeeper", "node", "python")
_LABELS = {"tickkeeper": "tickkeeper", "node": "bullmq 6.7.0 (Node.js)", "python": "bullmq 3.4.4 (Python, stock)"}


@dataclass(frozen=True, slots=True)
class Kept:
    """Ticks of one window. ``lost``: slots without a tick; ``doubled``: ticks taken up more than once."""

    late_ms: list[float]
    lost: int
    doubled: int


def play(sizes: Sizes) -> Row:
    """Each in turn, alone at an empty Redis with its default ``hz``."""
    row = Row("lateness", raw={"runs": []})
    with Stage() as stage:
        for beside, busy in (("idle", False), ("busy", True)):
            found: dict[str, list[Kept]] = {who: [] for who in _WHO}
            for run in range(sizes.runs):
                for who in _WHO:
                    say(f"lateness, {beside}, run {run + 1} of {sizes.runs}: {who}")
                    before = load()
                    with _busy_core(busy):
                        kept = _watch(stage, who, sizes)
                    found[who].append(kept)
                    row.raw["runs"].append({"who": who, "beside": beside, "load": before} | asdict(kept))
            _judge(row, found, beside, sizes)
    return row


def _judge(row: Row, found: dict[str, list[Kept]], beside: str, sizes: Sizes) -> None:
    where = "idle" if beside == "idle" else "one core busy"
    values: dict[tuple[str, int], list[float]] = {}
    for who in _WHO:
        for rank in (50, 99):
            values[who, rank] = [percentile(each.late_ms, rank) for each in found[who]]
            row.figures.append(
                Figure(f"every {sizes.every_ms} ms, {where}, {_LABELS[who]}: p{rank}", "ms", values[who, rank])
            )
        row.figures.append(Figure(f"{where}, {_LABELS[who]}: slots lost", "ticks", [each.lost for each in found[who]]))
    for rank in (50, 99):
        ratio = median(values["tickkeeper", rank]) / max(0.001, median(values["node", rank]))
        row.at_most(f"lateness-{beside}-p{rank}", ratio, "x", 0.25, "x Node's")
    row.at_most(f"lateness-{beside}-lost", sum(each.lost for each in found["tickkeeper"]), "ticks", 0)
    row.at_most(f"lateness-{beside}-doubled", sum(each.doubled for each in found["tickkeeper"]), "ticks", 0)


def _watch(stage: Stage, who: str, sizes: Sizes) -> Kept:
    stage.client.flushall()
    with _worker(stage, who):
        stage.ticks.schedule(_TENANT, every_ms=sizes.every_ms)
        time.sleep(_START * sizes.every_ms / 1000 + sizes.lateness)
        stage.ticks.unschedule(_TENANT)
        ticks = stage.ticks.over()
        return judge(ticks, every_ms=sizes.every_ms)


def judge(ticks: list[Tick], *, every_ms: int) -> Kept:
    """What became of the slots between the first and the last tick, the start left out."""
    window = [tick for tick in ticks if tick.due >= ticks[0].due + _START * every_ms]
    if not window:
        raise PartFailed(f"only {len(ticks)} ticks came")
    slots = (window[-1].due - window[0].due) // every_ms + 1
    distinct = {tick.due for tick in window}
    doubled = len(window) - len(distinct) + sum(tick.started > 1 for tick in window)
    return Kept([tick.late_ms for tick in window], slots - len(distinct), doubled)


@contextmanager
def _worker(stage: Stage, who: str) -> Iterator[None]:
    if who == "tickkeeper":
        worker = stage.worker("noop")
        try:
            yield
        finally:
            stage.end(worker)
        return
    with _node(stage) if who == "node" else _python(stage):
        yield


def _node(stage: Stage) -> Partner:
    folder = make_folder("node", parent=stage.folder) / "worker"
    shutil.copytree(_NODE, folder)
    (folder / "node_modules").symlink_to(NodeProject(_NODE).prepare() / "node_modules")
    settings = {"url": stage.redis.url, "prefix": PREFIX, "queues": [QUEUE], "concurrency": 1}
    env = {"WORKER_SETTINGS": json.dumps(settings)}
    partner = Partner([find_node(), folder / "worker.mjs"], log=stage.folder / "node.log", env=env)
    return _ready(partner, {"do": "mark"})


def _python(stage: Stage) -> Partner:
    script = _ROOT / "benchmarks" / "outbox" / "apps" / "stock_worker.py"
    return _ready(Partner([sys.executable, script, stage.redis.url], log=stage.folder / "python.log"), None)


def _ready(partner: Partner, question: dict[str, Any] | None) -> Partner:
    try:
        if question is None:
            partner.hear()
        else:
            partner.ask(question)
    except PartFailed:
        partner.close()
        raise
    return partner


@contextmanager
def _busy_core(busy: bool) -> Iterator[None]:
    if not busy:
        yield
        return
    process = Process([sys.executable, "-c", _BUSY], log=Path("/dev/null"))
    process.start()
    try:
        yield
    finally:
        process.kill()
