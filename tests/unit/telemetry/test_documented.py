"""docs/metrics.md names exactly the metrics that the processes export."""

import asyncio
import re
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from tickkeeper.controller.metrics import OperatorMetrics
from tickkeeper.controller.sites import Sites
from tickkeeper.controller.world import Options, World
from tickkeeper.controller.writer import Writer
from tickkeeper.telemetry.metrics import WorkerMetrics

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def exported(registry: CollectorRegistry) -> set[str]:
    suffix = {"counter": "_total", "info": "_info"}
    return {
        metric.name + suffix.get(metric.type, "")
        for metric in registry.collect()
        if metric.name.startswith("tickkeeper")
    }


def documented(section: str) -> set[str]:
    text = DOCS.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| (tickkeeper_\w+) \|", text, re.MULTILINE))


async def test_the_operators_metrics_are_documented() -> None:
    nothing: Any = None
    world = World(Options("c"), kube=nothing, references=nothing, publisher=nothing, sites=Sites(nothing))
    metrics = OperatorMetrics(CollectorRegistry())
    metrics.watch(world, Writer(nothing, identity="me"), asyncio.Event())
    assert exported(metrics.registry) == documented("Operator")


def test_the_workers_metrics_are_documented() -> None:
    assert exported(WorkerMetrics(CollectorRegistry()).registry) == documented("Worker")
