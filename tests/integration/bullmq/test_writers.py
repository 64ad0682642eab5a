"""Several writers of one scheduler at once."""

import asyncio
import subprocess
import sys
from pathlib import Path

from bullmq import Worker

from tests.integration.bullmq.conftest import Bench, desired
from tickkeeper.bullmq.clients import RedisSettings, Use, connect
from tickkeeper.schedules.desired import Every
from tickkeeper.schedules.plan import Plan, State, Step

ROOT = Path(__file__).parents[3]
UPSERT = Plan(State.MISSING, (Step.UPSERT,))


async def test_a7_registrations_at_once_make_one_delayed_job(bench: Bench) -> None:
    wanted = desired(schedule=Every(3_600_000, 1_234))
    for _ in range(40):
        bench.raw.flushall()
        await asyncio.gather(*(bench.applier.apply(wanted, UPSERT) for _ in range(6)))
        assert bench.raw.zcard(bench.key("delayed")) == 1
        assert bench.raw.zcard(bench.key("repeat")) == 1
        assert bench.raw.llen(bench.key("wait")) == 0


async def test_a2_four_processes_that_register_and_are_killed_keep_one_pending_job(
    bench: Bench, redis_url: str
) -> None:
    settings = RedisSettings(url=redis_url)
    ticked = asyncio.Event()

    async def tick(_job, _token) -> None:
        ticked.set()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "tests.integration.bullmq.registrar", redis_url], cwd=ROOT)

    worker = Worker(
        "ticks", tick, {"connection": connect(settings, use=Use.BLOCKING), "prefix": "bull", "runRetryDelay": 200}
    )
    registrars = [start() for _ in range(4)]
    try:
        for round_ in range(20):
            for _ in range(2):  # they go on
                ticked.clear()
                async with asyncio.timeout(30):
                    await ticked.wait()
            pending = bench.raw.zcard(bench.key("delayed")) + bench.raw.llen(bench.key("wait"))
            assert pending <= 1
            victim = round_ % 4
            registrars[victim].kill()
            registrars[victim].wait()
            registrars[victim] = start()
    finally:
        for registrar in registrars:
            registrar.kill()
            registrar.wait()
        await worker.close()
    assert bench.raw.zcard(bench.key("delayed")) == 1
    assert bench.raw.zcard(bench.key("repeat")) == 1
