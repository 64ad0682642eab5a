"""A stock BullMQ worker in Python for the queue ``ticks``: it takes every tick and does nothing with it.

The Redis is the first argument; it ends with its standard input.
"""

import asyncio
import sys
from typing import Any

from bullmq import Worker


async def main(url: str) -> None:
    """Work until standard input ends."""

    async def nothing(_job: Any, _token: str) -> None:
        return None

    worker = Worker("ticks", nothing, {"connection": url})
    print('{"ready": true}', flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await worker.close(True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
