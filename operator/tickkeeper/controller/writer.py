"""Writes to the API server that may wait: statuses, newest only, and events. Limited in rate, tried again."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from tickkeeper.controller.kube import API_ERRORS, Gone, Kube, Outdated, explain
from tickkeeper.controller.latest import LatestQueue
from tickkeeper.schedules.desired import ResourceKey

_log = structlog.get_logger(__name__)

#: Events that wait; beyond it the oldest are dropped, since conditions tell the same.
_MOST_EVENTS = 1_000
#: Seconds between two statuses of one resource: a fault that comes again and again costs one write a second.
_GAP = 1.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0
#: Seconds until a status that the API server refused is tried again, doubling.
_FIRST_REFUSAL = 15.0
_LONGEST_REFUSAL = 300.0


class _RefusedError(Exception):
    """The API server will not have it."""


#: A status as a merge patch, made at the moment of its writing.
MakePatch = Callable[[], Mapping[str, Any]]
_Status = tuple[str, MakePatch]


@dataclass(frozen=True, slots=True)
class Notice:
    """An event to post."""

    key: ResourceKey
    uid: str
    reason: str
    message: str
    warning: bool = False
    #: when it happened: it may be posted much later
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Writer:
    """Statuses and events on their way to the API server."""

    def __init__(self, kube: Kube, *, identity: str, per_second: float = 50.0, lanes: int = 4) -> None:
        self._kube = kube
        self._identity = identity
        self._gap = 1.0 / per_second
        self._lanes = lanes
        self._statuses: LatestQueue[_Status] = LatestQueue(self._wake)
        self._refusals: dict[ResourceKey, int] = {}
        self._events: deque[Notice] = deque(maxlen=_MOST_EVENTS)
        self._in_flight = 0
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._next_slot = 0.0
        self.writes = 0
        self.failures = 0

    def status(self, key: ResourceKey, uid: str, make: MakePatch) -> None:
        """Write what ``make`` returns soon, in place of what still waits."""
        self._statuses.put(key, (uid, make))

    def _refused_pause(self, key: ResourceKey) -> float:
        """A refusal may end by itself: a CRD is being replaced, a permission is granted, a webhook comes back."""
        count = self._refusals[key] = self._refusals.get(key, 0) + 1
        return min(_LONGEST_REFUSAL, _FIRST_REFUSAL * 2.0 ** min(count - 1, 10))

    def is_pending(self, key: ResourceKey) -> bool:
        """Whether a status of the resource waits, or is under way."""
        return key in self._statuses

    def event(self, notice: Notice) -> None:
        """Post an event soon."""
        self._events.append(notice)
        self._wake()

    def forget(self, key: ResourceKey) -> None:
        """A resource is gone: its status needs no writing."""
        self._statuses.forget(key)
        self._refusals.pop(key, None)

    async def drained(self) -> None:
        """Wait until nothing waits to be written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._lanes):
                group.create_task(self._lane())

    def _wake(self) -> None:
        self._idle.clear()
        self._work.set()

    async def _lane(self) -> None:
        while True:
            while not self._statuses and not self._events:
                self._work.clear()
                if not self._in_flight:
                    self._idle.set()
                await self._work.wait()
            self._in_flight += 1
            try:
                await self._turn()
            finally:
                self._in_flight -= 1

    async def _turn(self) -> None:
        await self._pace()
        # Statuses first: they are the truth, events only tell of its changes.
        if self._statuses:
            await self._write_status()
        elif self._events:
            notice = self._events.popleft()
            with suppress(_RefusedError):
                if not await self._try(self._post, notice):
                    self._events.appendleft(notice)

    async def _write_status(self) -> None:
        key, (uid, make) = self._statuses.take()
        rest, again = _GAP, None
        try:
            if not await self._try(self._kube.write_status, key, uid, make()):
                again = (uid, make)
            self._refusals.pop(key, None)
        except _RefusedError:
            rest, again = self._refused_pause(key), (uid, make)
        finally:
            self._statuses.done(key, rest=rest, again=again)

    async def _post(self, notice: Notice) -> None:
        await self._kube.post_event(
            notice.key,
            notice.uid,
            warning=notice.warning,
            reason=notice.reason,
            message=notice.message,
            identity=self._identity,
            at=notice.at,
        )

    async def _try(self, call: Any, *arguments: Any) -> bool:
        """One write. False: it should be tried again later."""
        try:
            await call(*arguments)
        except Gone:
            return True
        except Outdated:
            # Another uid, of which the watch will tell; or too many edits at once, which will end.
            raise _RefusedError from None
        except API_ERRORS as error:
            self.failures += 1
            _log.warning("api_write_failed", call=call.__name__, error=explain(error))
            status = getattr(error, "status", None)
            if status is not None and 400 <= status < 500 and status not in (408, 429):
                raise _RefusedError from None
            self._next_slot = asyncio.get_running_loop().time() + self._pause()
            return False
        self.writes += 1
        self.failures = 0
        return True

    def _pause(self) -> float:
        return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self.failures, 10))

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        slot = max(now, self._next_slot)
        self._next_slot = slot + self._gap
        if slot > now:
            await asyncio.sleep(slot - now)
