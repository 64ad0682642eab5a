"""The change feed: Redis says at once when a queue lost a scheduler, and when it went away or came back.

A RESP3 connection with CLIENT TRACKING reads ZCARD of each queue's ``repeat`` zset; Redis pushes an invalidation on its
next change, and on FLUSHALL (after 0.6 ms, measured; scripts' writes too). Every tick changes that zset, so an
invalidation costs one ZCARD, which arms it again, at most one each 50 ms and queue. Where many queues tick, several go
out together, about 40 times a second: an exchange costs more than what is in it. News is a count that is lower than the
last one, or than the number of schedulers that should be there.

Where the server refuses (Redis < 6, a proxy, an ACL), the connection still beats: its end tells of a restart.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from tickkeeper.bullmq.cancellation import raise_if_cancelled
from tickkeeper.bullmq.clients import Bounds, RedisSettings, Use, close, connect
from tickkeeper.bullmq.errors import REDIS_ERRORS, explain, is_refused
from tickkeeper.bullmq.keys import QueueKey

_log = structlog.get_logger(__name__)

#: Seconds between two reads of one queue's count.
_COALESCE = 0.05
#: Seconds that one exchange stands for, and how many of them may be used in advance: a quiet queue's loss is asked for
#: at once.
_EXCHANGE = 0.025
_IN_ADVANCE = 10 * _EXCHANGE
#: Seconds of silence after which the server is asked for a sign of life.
_BEAT = 1.0
#: Seconds between two tries to connect: constant, so that a return is noticed at once.
_RETRY = 0.1
#: The same where nobody listens yet.
_RETRY_REFUSED = 0.05

_Reply = Callable[[Any], None]


class Feed:
    """One connection to one Redis.

    Calls ``on_loss`` with a queue that lost a scheduler, ``expected`` for how many it should hold at least, and
    ``on_break`` when the connection broke and when it is back: whatever was there may be gone.
    """

    def __init__(
        self,
        settings: RedisSettings,
        *,
        on_loss: Callable[[QueueKey], None],
        expected: Callable[[QueueKey], int],
        on_break: Callable[[], None],
        bounds: Bounds | None = None,
    ) -> None:
        self._settings = settings
        self._on_loss = on_loss
        self._expected = expected
        self._on_break = on_break
        self._bounds = bounds or Bounds()
        self._queues: dict[str, QueueKey] = {}
        self._protocol: Literal[2, 3] = 3
        self._told = False
        self._reset()
        #: whether the server pushes changes; None before it has been asked
        self.tracking: bool | None = None
        #: counts read so far
        self.reads = 0

    def _reset(self) -> None:
        self._counts: dict[str, int] = {}
        self._read_at: dict[str, float] = {}
        self._changed: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._paid_until = 0.0
        self._replies: deque[_Reply] = deque()
        self._outbox: asyncio.Queue[tuple[_Reply, tuple[str, ...]]] = asyncio.Queue()
        self._heard = time.monotonic()

    def watch(self, queues: Iterable[QueueKey]) -> None:
        """Follow these queues from now on, and no others."""
        wanted = {queue.key("repeat"): queue for queue in queues}
        new = wanted.keys() - self._queues.keys()
        self._queues = wanted
        if self.tracking:
            self._read(new)

    async def run(self) -> None:
        """Follow until cancelled."""
        pause = _RETRY
        connected_before = True  # the site looks at everything at its start anyway
        while True:
            client = self._make_client()
            connection = client.connection_pool.make_connection()
            try:
                await self._greet(connection)
                if not connected_before:
                    self._on_break()
                connected_before = True
                await self._session(connection)
            except REDIS_ERRORS as error:
                pause = _RETRY_REFUSED if is_refused(error) else _RETRY
                if connected_before:
                    _log.debug("feed_broke", redis=str(self._settings.address), error=explain(error))
            finally:
                self._disarm()
                with suppress(*REDIS_ERRORS):
                    await connection.disconnect(nowait=True)
                await close(client)
            raise_if_cancelled()
            if connected_before:
                self._on_break()
            connected_before = False
            self._reset()
            await asyncio.sleep(pause)

    def _make_client(self) -> Any:
        """A client for one connection; it lives as long, since a sentinel's connection asks its pool for the master."""
        once = Bounds(connect=self._bounds.connect, reply=self._bounds.reply, retries=0)
        return connect(self._settings, use=Use.BLOCKING, name="tickkeeper-feed", bounds=once, protocol=self._protocol)

    async def _greet(self, connection: AbstractConnection) -> None:
        """Connect, and ask for the pushes. Raises redis' errors where that Redis cannot be used at all."""
        try:
            async with asyncio.timeout(self._bounds.connect + self._bounds.reply):
                await connection.connect()  # type: ignore[no-untyped-call]
                if self._protocol == 3:
                    # redis-py drops invalidations unless somebody takes them; its connection has no public way.
                    connection._parser.set_invalidation_push_handler(self._pushed)  # type: ignore[attr-defined] # noqa: SLF001
                    await connection.send_command("CLIENT", "TRACKING", "ON")
                    await connection.read_response()
                    self.tracking = True
        except ResponseError as error:
            self._without_tracking(error)
        except RedisConnectionError as error:
            if self._protocol == 3 and "HELLO" in str(error):
                self._without_tracking(error)
            raise

    def _without_tracking(self, error: RedisError) -> None:
        self.tracking = False
        self._protocol = 2
        if not self._told:
            self._told = True
            _log.warning("no_change_feed", redis=str(self._settings.address), error=str(error), instead="sweeps only")

    async def _session(self, connection: AbstractConnection) -> None:
        self._heard = time.monotonic()
        if self.tracking:
            self._read(self._queues)
        # No TaskGroup: on 3.11 it leaves its task marked as cancelled when a child fails, and this one lives on.
        loops = [
            asyncio.create_task(loop) for loop in (self._receive(connection), self._send(connection), self._beat())
        ]
        try:
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
        for task in done:
            task.result()

    async def _receive(self, connection: AbstractConnection) -> None:
        while True:
            raise_if_cancelled()
            try:
                message = await connection.read_response(push_request=True, disconnect_on_error=False)
            except ResponseError as error:
                message = error
            self._heard = time.monotonic()
            if not isinstance(message, list) and self._replies:  # a list is a push, seen to by its handler
                self._replies.popleft()(message)

    async def _pushed(self, message: list[Any]) -> list[Any]:
        self._invalidated(message[1] if len(message) > 1 else None)
        return message

    async def _send(self, connection: AbstractConnection) -> None:
        while True:
            waiting = [await self._outbox.get()]
            while not self._outbox.empty():
                waiting.append(self._outbox.get_nowait())
            self._replies.extend(reply for reply, _ in waiting)
            packed = connection.pack_commands([command for _, command in waiting])
            await connection.send_packed_command(packed)
            raise_if_cancelled()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            if time.monotonic() - self._heard < _BEAT:
                continue
            asked = time.monotonic()
            self._outbox.put_nowait((lambda _: None, ("PING",)))
            await asyncio.sleep(min(self._bounds.reply, _BEAT))
            if self._heard < asked:
                raise TimeoutError("no sign of life")

    def _invalidated(self, keys: list[str | bytes] | None) -> None:
        """Redis says that keys have changed; None: all of them are gone."""
        if keys is None:
            self._changed.update(self._queues)
        else:
            names = (key.decode() if isinstance(key, bytes) else key for key in keys)
            self._changed.update(name for name in names if name in self._queues)
        self._arm()

    def _arm(self) -> None:
        """See to it that all that changed is read in time."""
        if not self._changed:
            return
        turn = min(self._read_at.get(key, 0.0) for key in self._changed) + _COALESCE
        at = max(turn, self._paid_until - _IN_ADVANCE)
        if at <= time.monotonic():
            self._read_changed()
        elif self._timer is None or at < self._timer.when():
            self._disarm()
            self._timer = asyncio.get_running_loop().call_at(at, self._read_changed)  # its clock is time.monotonic

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _read_changed(self) -> None:
        self._disarm()
        # With those whose turn would come before the next exchange.
        latest = time.monotonic() - _COALESCE + _EXCHANGE
        due = [key for key in self._changed if self._read_at.get(key, 0.0) <= latest]
        self._changed.difference_update(due)
        self._read(due)
        self._arm()

    def _read(self, keys: Iterable[str]) -> None:
        now = time.monotonic()
        self._paid_until = max(now, self._paid_until) + _EXCHANGE
        for key in keys:
            self._read_at[key] = now
            self.reads += 1
            self._outbox.put_nowait((partial(self._counted, key), ("ZCARD", key)))

    def _counted(self, key: str, reply: Any) -> None:
        queue = self._queues.get(key)
        if queue is None:
            return
        if not isinstance(reply, int):
            # A slot that moved is followed; a key of another type is the sweep's to report.
            if isinstance(reply, AskError):  # MOVED is one of them
                self._on_break()
            return
        before = self._counts.get(key, 0)
        self._counts[key] = reply
        # A scheduler that is lost within 50 ms of its registration never raised the count.
        if reply < max(before, self._expected(queue)):
            self._on_loss(queue)
