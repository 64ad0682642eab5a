"""BullMQ's own Node side: a worker, the driver that applications bring along, and a look at a queue."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from embedded.node import NodeProject
from embedded.process import wait_for
from embedded.versions import NODE_PROJECT


class NodeWorker:
    """A Node worker of queue ``ticks``, and the lines that it printed."""

    def __init__(self, log: Path) -> None:
        self._log = log

    @property
    def lines(self) -> list[dict[str, Any]]:
        complete = self._log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines() if line.startswith("{")]

    @property
    def ticks(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == "tick"]


@pytest.fixture(scope="session")
def node() -> Iterator[NodeProject]:
    """The scripts, with their packages installed."""
    with NodeProject(NODE_PROJECT) as project:
        yield project


@pytest.fixture
def driver(node: NodeProject, redis_url: str) -> Callable[..., dict[str, Any]]:
    """``driver("start", "tick", 200)``, ``driver("stop", "tick")``: one replica of the application."""

    def command(*words: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(node.run("driver.mjs", *map(str, words), env={"REDIS_URL": redis_url}))
        return answer

    return command


@pytest.fixture
def look(node: NodeProject, redis_url: str) -> Callable[[], dict[str, Any]]:
    """What Node sees of the queue."""

    def see() -> dict[str, Any]:
        seen: dict[str, Any] = json.loads(node.run("look.mjs", env={"REDIS_URL": redis_url}))
        return seen

    return see


@pytest.fixture
def node_worker(node: NodeProject, redis_url: str, tmp_path: Path) -> Callable[[], AbstractContextManager[NodeWorker]]:
    """A running Node worker."""

    @contextmanager
    def running() -> Iterator[NodeWorker]:
        log = tmp_path / "node-worker.log"
        process = node.process("worker.mjs", log=log, env={"REDIS_URL": redis_url})
        process.start()
        try:
            worker = NodeWorker(log)
            wait_for(lambda: worker.lines, seconds=60, what="the Node worker is ready")
            yield worker
        finally:
            process.stop()

    return running
