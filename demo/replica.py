"""Another replica of an application that registers its clock itself: its ``stop()``, which takes the clock from all.

A process of its own, used where Node.js is missing: ``python -m demo.replica <queue> <scheduler id>``, with REDIS_URL
in its environment. Prints ``removed`` once BullMQ has answered.
"""

import asyncio
import os
import sys

from bullmq import Queue
from redis.asyncio import Redis


async def stop(queue_name: str, scheduler_id: str) -> bool:
    """What such a driver does when it ends. True: it took a scheduler away."""
    client = Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
    queue = Queue(queue_name, {"connection": client})
    try:
        return not await queue.removeJobScheduler(scheduler_id)  # 0: removed, 1: there was none
    finally:
        await client.aclose()


if __name__ == "__main__":
    if not asyncio.run(stop(*sys.argv[1:])):
        sys.exit(f"there is no scheduler {sys.argv[2]}")
    print("removed")
