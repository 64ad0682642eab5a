"""Python 3.11 may swallow a cancellation in what a library awaits: the worker's loops end all the same."""

import asyncio
import time
from datetime import timedelta
from uuid import uuid4

from tests.unit.worker.fakes import eventually
from tickkeeper.outbox.store import Settled
from tickkeeper.worker.lease import Lease
from tickkeeper.worker.overlap import Running


class Swallowing:
    """Answers each call only after a cancellation, as if that had not been one."""

    def __init__(self, answer):
        self.calls = 0
        self._answer = answer

    async def __call__(self, *_arguments):
        self.calls += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return self._answer

    eval = renew = __call__


async def _ends(coroutine, called):
    task = asyncio.create_task(coroutine)
    await eventually(lambda: called.calls == 1)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
    assert called.calls == 1


async def test_the_running_key_is_not_taken_again_after_its_tick():
    redis = Swallowing(1)
    await _ends(Running(redis, "bull:ticks:tickkeeper:running:a", ttl=0.03).hold(), redis)


async def test_a_lease_is_not_held_on_after_its_batch():
    store = Swallowing(Settled(1))
    lease = Lease(store, uuid4(), timedelta(seconds=0.3), since=time.monotonic(), clock=time.monotonic)
    await _ends(lease.hold((1,)), store)
