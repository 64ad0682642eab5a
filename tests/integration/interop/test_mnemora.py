"""Node peers of mnemora (@mnemora/core and @mnemora/postgres 1.0.0) and our workers on one queue and one table."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from embedded.node import NodeProject
from embedded.process import Process
from tests.integration.interop.conftest import NodeWorker
from tests.integration.interop.mnemora_table import make_table, put, states
from tests.integration.worker.conftest import queue_of
from tests.integration.worker.process import Worker, worker_process

ROWS = 1000
WORK_MS = "3"


@pytest.fixture(scope="module")
def mnemora() -> Iterator[NodeProject]:
    with NodeProject(Path(__file__).parent / "mnemora") as project:
        yield project


class Node:
    """One Node peer."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self.lines = NodeWorker(log)

    def kill(self) -> None:
        self.process.kill()

    @property
    def conflicts(self) -> int:
        return sum(len(line["leaseConflicts"]) for line in self.lines.lines if line["event"] == "tick")


class Scene:
    """Two peers of each side, and what they did."""

    def __init__(self, folder: Path, project: NodeProject, redis: str, database: str, stack: ExitStack) -> None:
        self.effects = folder / "effects"
        self.effects.touch()
        self.database = database
        self._folder = folder
        self._project = project
        self._redis = redis
        self._stack = stack
        self._count = 0

    def _log(self, name: str) -> Path:
        self._count += 1
        return self._folder / f"{name}-{self._count}"

    def node(self, name: str, *, lease_ms: int, ahead_ms: int = 0) -> Node:
        log = self._log(name)
        environment = {
            "NAME": name,
            "EFFECTS": str(self.effects),
            "REDIS_URL": self._redis,
            "DATABASE_URL": self.database,
            "LEASE_MS": str(lease_ms),
            "CLOCK_AHEAD_MS": str(ahead_ms),
            "WORK_MS": WORK_MS,
        }
        process = self._project.process("peer.mjs", log=log, env=environment)
        process.start()
        self._stack.callback(process.stop)
        return Node(process, log)

    def ours(self, name: str, *, lease_ms: int) -> Worker:
        settings = {
            "STORE": "mnemora",
            "HANDLERS": "tests.integration.interop.app",
            "LEASE_SECONDS": str(lease_ms / 1000),
            "BATCH_SIZE": "50",
            "HANDLER_CONCURRENCY": "1",
            "TIME_BUDGET_SECONDS": "0.05",
        }
        worker = worker_process(self._log(name), redis=self._redis, database=self.database, **settings)
        with _variables(NAME=name, WORK_MS=WORK_MS):
            return self._stack.enter_context(worker)

    @property
    def did(self) -> Counter[str]:
        """How often each row's effect happened."""
        return Counter(line.split()[1] for line in self.effects.read_text().splitlines())

    @property
    def who(self) -> set[str]:
        return {line.split()[0] for line in self.effects.read_text().splitlines()}

    def completed(self) -> int:
        return states(self.database)["completed"]


@contextmanager
def _variables(**values: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def scene(tmp_path: Path, mnemora: NodeProject, redis_url: str, database: str) -> Iterator[Scene]:
    make_table(database)
    with ExitStack() as stack:
        yield Scene(tmp_path, mnemora, redis_url, database, stack)


async def _ticks_until(url: str, holds: Callable[[], Any], seconds: float) -> None:
    """A tick each 20 ms, as many schedules would make them, until something holds."""
    async with asyncio.timeout(seconds), queue_of(url) as queue:
        while not holds():
            await queue.add("tick", {"tenantId": "acme"}, {"removeOnComplete": True, "removeOnFail": True})
            await asyncio.sleep(0.02)


async def test_peers_of_both_languages_work_each_row_once(scene: Scene, redis_url: str) -> None:
    nodes = [scene.node(f"node-{n}", lease_ms=60_000) for n in (1, 2)]
    ours = [scene.ours(f"ours-{n}", lease_ms=60_000) for n in (1, 2)]
    for worker in ours:
        await asyncio.to_thread(worker.wait_for, "outbox ready")
    await _ticks_until(redis_url, lambda: all(node.lines.lines for node in nodes), 30)
    put(scene.database, range(ROWS))
    await _ticks_until(redis_url, lambda: scene.completed() == ROWS, 60)
    assert scene.did == {str(n): 1 for n in range(ROWS)}
    assert scene.who == {"node-1", "node-2", "ours-1", "ours-2"}
    with psycopg.connect(scene.database) as connection:
        assert connection.execute("SELECT DISTINCT attempts, failed_at FROM outbox").fetchall() == [(1, None)]
    assert [node.conflicts for node in nodes] == [0, 0]


async def test_with_faults_on_both_sides_and_a_clock_10_minutes_ahead_no_row_is_lost(
    scene: Scene, redis_url: str, record_property: Callable[[str, object], None]
) -> None:
    """Peers and workers are killed in the midst of their batches; one peer takes every claim of others for expired."""
    lease, ahead = 1500, 600_000
    make: dict[str, Callable[[], Any]] = {
        "node-1": lambda: scene.node("node-1", lease_ms=lease),
        "node-2": lambda: scene.node("node-2", lease_ms=lease, ahead_ms=ahead),
        "ours-1": lambda: scene.ours("ours-1", lease_ms=lease),
        "ours-2": lambda: scene.ours("ours-2", lease_ms=lease),
    }
    running = {name: start() for name, start in make.items()}
    put(scene.database, range(ROWS))
    chosen = random.Random(7)
    kills = [name for name in make for _ in range(2)]
    chosen.shuffle(kills)
    for number, name in enumerate(kills):
        # The next one falls once a tenth of the rows more has been worked, and once itself has done something; the
        # quicker ones may leave it nothing to do, and then it falls while the last tenth is worked.
        def due(at: int = number, who: str = name) -> bool:
            took_part = who in scene.who or scene.completed() >= ROWS * 9 // 10
            return took_part and sum(scene.did.values()) >= ROWS // 10 * at

        await _ticks_until(redis_url, due, 60)
        victim = running[name]
        if isinstance(victim, Worker):
            victim.terminate(signal.SIGKILL)
        else:
            victim.kill()
        running[name] = make[name]()
    await _ticks_until(redis_url, lambda: scene.completed() == ROWS, 90)
    did = scene.did
    assert set(did) == {str(n) for n in range(ROWS)}
    assert states(scene.database) == {"completed": ROWS, "failed": 0, "both": 0}
    redelivered = sum(did.values()) - ROWS
    record_property("redelivered", redelivered)
    print(f"{redelivered} of {ROWS} rows were delivered again")
    assert redelivered > 0  # else nothing was killed in mid-batch, and the test shows nothing
