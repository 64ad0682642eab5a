"""The whole machine stands still for a while: operator, worker and Redis go on from where they were."""

import signal
import time
from itertools import pairwise
from pathlib import Path

from redis import Redis

from embedded.redis import Redis as RedisServer
from tests.integration.controller.conftest import Alone
from tests.integration.controller.scene import Scene
from tests.integration.worker.process import worker_process
from tickkeeper.outbox.migrate import migrate_sync

EVERY = 500
#: Long, by the interval: a dozen ticks are due meanwhile.
FROZEN_SECONDS = 6.0


def ticks(scene: Scene, raw: Redis) -> dict[int, int]:
    """When each slot's tick was taken (epoch ms), by its slot."""
    found = {}
    for job in raw.zrange(scene.key("completed"), 0, -1):
        taken = raw.hget(scene.key(job), "processedOn")
        if taken is not None:
            found[int(job.rpartition(":")[2])] = int(taken)
    return found


def test_d13_everything_stands_still_for_a_long_while(
    alone: Alone, own_redis: RedisServer, database: str, tmp_path: Path
) -> None:
    migrate_sync(database)
    scene = alone()
    with (
        own_redis.client() as raw,
        worker_process(
            tmp_path / "worker", redis=own_redis.url, database=database, QUEUE="ticks", PREFIX=scene.prefix
        ) as worker,
    ):
        scene.create_ready(everyMs=EVERY, offsetMs=1)
        scene.until(lambda: len(ticks(scene, raw)) >= 3, what="ticks")
        before = len(ticks(scene, raw))
        scene.until(lambda: len(ticks(scene, raw)) > before, what="right after a tick, so that none is under way")
        for process in (worker.popen, scene.operator.popen):
            process.send_signal(signal.SIGSTOP)
        own_redis.freeze()
        stopped = time.time() * 1000
        time.sleep(FROZEN_SECONDS)
        own_redis.thaw()
        thawed = time.time() * 1000
        for process in (worker.popen, scene.operator.popen):
            process.send_signal(signal.SIGCONT)

        def after() -> dict[int, int]:
            return {slot: taken for slot, taken in ticks(scene, raw).items() if taken > stopped}

        scene.until(lambda: len([slot for slot in after() if slot > thawed]) >= 4, 30, "ticks go on")
        missed = [slot for slot in after() if slot <= thawed]
        assert len(missed) <= 1, f"{missed} were made up for"
        later = sorted(slot for slot in after() if slot > thawed)
        assert {b - a for a, b in pairwise(later)} == {EVERY}, "on each of its slots again"
        assert all(slot % EVERY == 1 for slot in ticks(scene, raw))
        assert scene.score(raw)
        scene.until_condition("Ready", "True")
        scene.until_condition("Ticking", "True")
        scene.operator.after_sweeps(2)
        assert scene.heals() == 0
        assert worker.popen.poll() is None
