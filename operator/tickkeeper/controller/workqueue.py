"""Keys to reconcile: each at most once in the queue, never twice at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")


class WorkQueue(Generic[Key]):
    """A queue of keys, as Kubernetes controllers have it: adding a key that waits changes nothing, and a key that is
    being worked on is worked on once more afterwards."""

    def __init__(self) -> None:
        self._waiting: dict[Key, None] = {}
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._ready = asyncio.Event()

    def add(self, key: Key) -> None:
        """Work on ``key`` soon."""
        if key in self._busy:
            self._again.add(key)
        else:
            self._waiting[key] = None
            self._ready.set()

    def add_later(self, key: Key, seconds: float) -> None:
        """Work on ``key`` in ``seconds``, unless an earlier time was asked for."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and not timer.cancelled():
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._ring, key)

    def _ring(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self, work: Callable[[Key], Awaitable[None]], *, lanes: int) -> None:
        """Call ``work`` for each key until cancelled; it must not raise."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(lanes):
                    group.create_task(self._lane(work))
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _lane(self, work: Callable[[Key], Awaitable[None]]) -> None:
        while True:
            while not self._waiting:
                self._ready.clear()
                await self._ready.wait()
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._busy.add(key)
            try:
                await work(key)
            finally:
                self._busy.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)
