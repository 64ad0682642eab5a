"""A bullmq Worker in a thread, so that a test can wait for what it does."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bullmq import Worker

from tickkeeper.bullmq.clients import RedisSettings, Use, connect


@contextmanager
def worker(url: str, *, prefix: str, queue: str = "ticks") -> Iterator[list[dict[str, Any]]]:
    """A worker that completes each tick at once; yields the data of those that it took."""
    taken: list[dict[str, Any]] = []
    stop = threading.Event()
    ready = threading.Event()

    async def run() -> None:
        client = connect(RedisSettings(url=url), use=Use.BLOCKING)

        async def process(job: Any, _token: str) -> None:
            taken.append(job.data)

        bull = Worker(queue, process, {"connection": client, "prefix": prefix})
        ready.set()
        try:
            await asyncio.to_thread(stop.wait)
        finally:
            await bull.close(force=True)  # its blocking wait would hold it up for seconds
            await client.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="worker")
    thread.start()
    try:
        assert ready.wait(10)
        yield taken
    finally:
        stop.set()
        thread.join(15)
        assert not thread.is_alive()
