"""Another replica of an application that registers its clock itself: its ``stop()`` takes the clock from all of them.

A process of its own: BullMQ's Node package where Node.js is there, else BullMQ's Python port, which is this module run
as ``python -m demo.replica <scheduler id>`` with REDIS_URL in its environment.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from bullmq import Queue
from redis.asyncio import Redis

from demo.watch import QUEUE
from embedded.errors import PartFailed
from embedded.node import NodeProject

_ROOT = Path(__file__).resolve().parent.parent


def stop_another_replica(node: NodeProject | None, redis_url: str, scheduler_id: str) -> str:
    """Have a process remove the scheduler and end; returns what it was. PartFailed with what it complained."""
    environment = {"REDIS_URL": redis_url}
    if node is not None:
        answer = node.run("driver.mjs", "stop", scheduler_id, env=environment)
        if json.loads(answer)["removed"] is not True:
            raise PartFailed(f"the other replica found nothing to remove: {answer.strip()}")
        return "Node's BullMQ"
    command = [sys.executable, "-m", "demo.replica", scheduler_id]
    done = subprocess.run(
        command, cwd=_ROOT, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 0:
        raise PartFailed(f"the other replica (exit {done.returncode}): {done.stderr.strip()[-500:]}")
    return "BullMQ's Python port"


async def stop(scheduler_id: str) -> bool:
    """What such a driver does when it ends. True: there was a scheduler to take away."""
    client = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
    queue = Queue(QUEUE, {"connection": client})
    try:
        return not await queue.removeJobScheduler(scheduler_id)  # 0: removed, 1: there was none
    finally:
        await client.aclose()


if __name__ == "__main__" and not asyncio.run(stop(sys.argv[1])):
    sys.exit(f"there is no scheduler {sys.argv[1]}")
