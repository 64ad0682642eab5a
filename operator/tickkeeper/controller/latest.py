"""A queue of the newest value for each key: with a time before which a key rests, and no key twice at once."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from tickkeeper.schedules.desired import ResourceKey

Value = TypeVar("Value")


class LatestQueue(Generic[Value]):
    """Values that wait, newest only. ``on_ready`` is called when a key may be taken."""

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        self._values: dict[ResourceKey, Value] = {}
        self._ready: dict[ResourceKey, None] = {}
        self._resting: dict[ResourceKey, asyncio.TimerHandle] = {}
        self._not_before: dict[ResourceKey, float] = {}
        self._busy: set[ResourceKey] = set()

    def __bool__(self) -> bool:
        """Whether a key may be taken now."""
        return bool(self._ready)

    def __contains__(self, key: ResourceKey) -> bool:
        """Whether a value of the key waits, or is being seen to."""
        return key in self._values or key in self._busy

    def put(self, key: ResourceKey, value: Value) -> None:
        """``value`` waits, in place of an older one."""
        self._values[key] = value
        self._schedule(key)

    def take(self) -> tuple[ResourceKey, Value]:
        """The key that is ready longest, and its value; it is busy until ``done``."""
        key = next(iter(self._ready))
        del self._ready[key]
        self._busy.add(key)
        return key, self._values.pop(key)

    def done(self, key: ResourceKey, *, rest: float, again: Value | None = None) -> None:
        """A taken key was seen to and rests for ``rest`` seconds; ``again`` waits on, unless a newer value came."""
        if key not in self._busy:
            return  # forgotten meanwhile
        self._busy.discard(key)
        self._not_before[key] = asyncio.get_running_loop().time() + rest
        if again is not None:
            self._values.setdefault(key, again)
        if key in self._values:
            self._schedule(key)

    def forget(self, key: ResourceKey) -> None:
        """Nothing of the key needs to be seen to any more."""
        self._values.pop(key, None)
        self._ready.pop(key, None)
        self._busy.discard(key)
        self._not_before.pop(key, None)
        if (timer := self._resting.pop(key, None)) is not None:
            timer.cancel()

    def _schedule(self, key: ResourceKey) -> None:
        if key in self._busy or key in self._ready or key in self._resting:
            return
        loop = asyncio.get_running_loop()
        wait = self._not_before.get(key, 0.0) - loop.time()
        if wait > 0:
            self._resting[key] = loop.call_later(wait, self._rested, key)
        else:
            self._ready[key] = None
            self._on_ready()

    def _rested(self, key: ResourceKey) -> None:
        self._resting.pop(key, None)
        self._ready[key] = None
        self._on_ready()
