"""Ticks on time: ring the queue's bell at the due time, from a local timer.

An idle BullMQ worker blocks on the queue's marker until the earliest delayed job is due, and Redis ends that wait by
its own clock (``hz``, 10 a second: p50 32 ms late). A marker written at the due time ends it at once. It is BullMQ's
own "a job is waiting" marker, ``0`` with score 0, so any worker that wakes by it looks for work and finds it or not: a
marker too many costs one look, one too few costs what it cost before.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redis.asyncio import Redis

_MEMBER, _SCORE = "0", 0
# Redis ends waits of this length well by itself, and a due time that has passed needs no bell.
_TOO_SOON = 0.002


# The loop keeps only weak references to tasks.
_ringing: set["asyncio.Task[None]"] = set()


@contextmanager
def bell(client: Redis, marker: str, due_ms: int) -> Iterator[None]:
    """While the block runs, a timer is set to ``due_ms`` (epoch ms by this machine's clock; 0: nothing is due).

    A ring under way is not cancelled: an interrupted command costs its connection.
    """
    delay = due_ms / 1000 - time.time() if due_ms else 0.0
    timer = asyncio.get_running_loop().call_later(delay, _start, client, marker) if delay > _TOO_SOON else None
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def _start(client: Redis, marker: str) -> None:
    task = asyncio.create_task(_ring(client, marker), name="bell")
    _ringing.add(task)
    task.add_done_callback(_ringing.discard)


async def _ring(client: Redis, marker: str) -> None:
    try:
        await client.zadd(marker, {_MEMBER: _SCORE})
    except Exception:  # noqa: BLE001 - Redis' own time-out ends the wait, as it would without a bell
        return
