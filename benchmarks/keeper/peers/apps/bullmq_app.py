"""BullMQ alone: an application that registers its job scheduler at its start and works its ticks."""

# mypy: ignore-errors
# Its packages are in an environment of its own.

import asyncio
import os
import time
from typing import Any

from bullmq import Queue, Worker


async def tick(*_: Any) -> None:
    """One firing."""
    with open(os.environ["PEER_TICKS"], "a") as ticks:  # noqa: ASYNC230, PTH123 - one short line
        ticks.write(f"{time.time()}\n")


async def main() -> None:
    """Until killed."""
    connection = {"connection": os.environ["PEER_REDIS"]}
    queue = Queue("ticks", connection)
    await queue.upsertJobScheduler("tick", {"every": 1000}, "tick")
    worker = Worker("ticks", tick, connection)
    await asyncio.Event().wait()
    await worker.close()


if __name__ == "__main__":
    asyncio.run(main())
