"""bullmq's Worker with the guards that production needs; one instance lives until its run() ends, then a new one.

Each guard answers something measured on bullmq 3.4.4 and redis-py 8 (docs/decisions).
"""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from bullmq import Job, Worker
from bullmq.job_scheduler import JobScheduler
from bullmq.redis_connection import RedisConnection
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from tickkeeper.bullmq.clients import close
from tickkeeper.bullmq.errors import REDIS_ERRORS
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.worker.cron import repeat_strategy
from tickkeeper.worker.punctual import bell

_log = get_logger(__name__)

Process = Callable[[Job, str], Awaitable[Any]]

# A blocking wait that outlasts its own time-out by this much has a dead connection under it: without a socket
# time-out nothing else would ever notice (a frozen server, a network that drops packets).
_DEAF_AFTER = 3.0
_FETCHES = 2
_PROBE = 0.2
_HANG_UP = 1.0


class Consumer(Worker):  # type: ignore[misc]  # bullmq has no types
    """Takes jobs of one queue. ``on_contact(error)`` is told of each exchange with Redis: None when it worked."""

    def __init__(
        self,
        queue: str,
        process: Process,
        *,
        commands: Redis,
        blocking: Redis,
        options: dict[str, Any],
        on_contact: Callable[[Exception | None], None] = lambda _error: None,
    ) -> None:
        super().__init__(queue, process, {**options, "connection": commands, "autorun": False})
        self._on_contact = on_contact
        # bullmq makes both of its connections from one option; the one that blocks must have no socket time-out.
        self.bclient = blocking
        self.blockingRedisConnection = self.backend.blocking_connection = RedisConnection(blocking)
        # bullmq starts as many fetches at once as it may run jobs, and each takes a connection that then stays open.
        self._fetching = asyncio.Semaphore(_FETCHES)
        self._probing = asyncio.Lock()
        self._tried = 0.0
        self._away = False
        self._look_first = False
        # Fetches under way and jobs taken that nothing works yet; at the end nothing more is fetched.
        self._in_hand = 0
        self._empty_handed = asyncio.Event()
        self._empty_handed.set()
        self._last_call = False
        self._released = asyncio.Event()
        # Its default is croniter, which is wrong at daylight-saving changes.
        self._job_scheduler = JobScheduler(self, repeat_strategy=repeat_strategy)
        self.clientName = client_name(self.prefix, queue, self.workerName)

    async def prepare(self) -> str:
        """Learn what the server can do, and its maxmemory-policy. Raises redis errors.

        Until it is known, waits are rounded up to whole seconds, and a 100 ms schedule ticks once a second.
        """
        for connection in (self.redisConnection, self.blockingRedisConnection):
            await connection.getRedisVersion()
        memory = await self.client.info("memory")
        return str(memory.get("maxmemory_policy", "unknown"))

    async def skew(self) -> float:
        """Seconds by which this process's clock is ahead of Redis'; 0 where that cannot be told."""
        before = time.time()
        try:
            seconds, microseconds = await self.client.time()
        except ResponseError:
            return 0.0  # the user may not ask
        theirs = float(seconds + microseconds / 1e6)
        return before - theirs if before > theirs else min(0.0, time.time() - theirs)

    async def waitForJob(self) -> int:  # noqa: N802 - bullmq's name
        """Wait for the queue's marker, ring the bell at the due time, and never wait on a dead connection."""
        if self._look_first:
            # The wait that broke may have taken the queue's only marker with it: look before waiting again.
            self._look_first = False
            return 0
        return int(await self._watched(self._wait))

    async def _wait(self) -> int:
        with bell(self.client, self.keys["marker"], self.blockUntil):
            async with asyncio.timeout(self.getBlockTimeout(self.blockUntil) + _DEAF_AFTER):
                due: int = await super().waitForJob()
                return due

    async def moveToActive(self, token: str) -> Job | None:  # noqa: N802 - bullmq's name
        """Take the next job, if there is one."""
        take = super().moveToActive
        job: Job | None = None
        async with self._fetching:
            if self._last_call:
                await self._released.wait()
                return None
            self._hold(1)
            try:
                job = await self._watched(lambda: take(token))
            finally:
                if job is None:
                    self._hold(-1)
            return job

    async def processJob(self, job: Job, token: str) -> None:  # noqa: N802 - bullmq's name
        """Work one job that was taken."""
        self._hold(-1)
        await super().processJob(job, token)

    def _hold(self, more: int) -> None:
        self._in_hand += more
        if self._in_hand:
            self._empty_handed.clear()
        else:
            self._empty_handed.set()

    async def close(self, force: bool = False) -> None:
        """Stop fetching, wait for the jobs that run, and hang up; by force without waiting.

        bullmq's run() ends with the first job that is done after close() has begun, and its close() waits only for what
        ran then: a job that was just being taken would stay in `active`, worked by nobody. So fetches end first.
        """
        if not force and self.running:
            self._last_call = True
            await self._empty_handed.wait()
            if self.forceClosing:
                return
        self._released.set()
        await super().close(force)

    async def _scheduleNextIteration(self, job: Job) -> None:  # noqa: N802 - bullmq's name
        # Repeated inside bullmq for as long as Redis is away, with the job taken and nothing told.
        schedule = super()._scheduleNextIteration
        await self._watched(lambda: schedule(job))

    async def _watched(self, exchange: Callable[[], Awaitable[Any]]) -> Any:
        # bullmq retries connection errors without an event, NOAUTH and maxclients among them: liveness is ours to keep.
        await self._turn()
        try:
            result = await exchange()
        except REDIS_ERRORS as error:
            self._away = self._look_first = True
            self._on_contact(error)
            raise
        self._away = False
        self._on_contact(None)
        return result

    async def _turn(self) -> None:
        """While Redis is away, one try in ``_PROBE`` seconds for all that wait, not one for each."""
        while self._away:
            async with self._probing:
                wait = self._tried + _PROBE - time.monotonic()
                if wait <= 0:
                    self._tried = time.monotonic()
                    return
                await asyncio.sleep(wait)

    async def hang_up(self) -> None:
        """Close both clients once more: a task that bullmq's close did not wait for may have connected again."""
        for client in (self.client, self.bclient):
            with suppress(Exception):
                async with asyncio.timeout(_HANG_UP):
                    await close(client)

    def emit(self, event_name: str, *args: Any, **kwargs: Any) -> None:
        """Tell the listeners. One that raises would end run(), or the stalled check, without a word."""
        for listener in self._callbacks.get(event_name, ()):
            try:
                listener(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - see above
                _log.error("listener failed", queue=self.name, listener=event_name, error=error)


def client_name(prefix: str, queue: str, worker: str | None) -> str:
    """How this worker's connections are called in CLIENT LIST: as bullmq calls them, and as Redis can take it.

    Redis refuses spaces and anything outside ASCII, and a refused name ends run(); Node's form is base64 for all.
    """
    shown = queue if _speakable(queue) else base64.b64encode(queue.encode()).decode()
    name = f"{prefix}:{shown}" + (f":w:{worker}" if worker else "")
    return "".join(character if _speakable(character) else "_" for character in name)


def _speakable(text: str) -> bool:
    return all("!" <= character <= "~" for character in text)
