"""concurrencyPolicy Forbid: one tick of a schedule at a time, whatever became of its BullMQ lock.

A key per schedule beside the queue's own keys (same hash tag), with a token and an expiry. BullMQ's lock is no
substitute: it is lost with a blocked event loop, and its token is shared between a worker's jobs. Node peers do not
know the key.
"""

import asyncio
import secrets
import time
from typing import cast

from redis.asyncio import Redis

from tickkeeper.bullmq.cancellation import raise_if_cancelled
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.telemetry.logs import get_logger

_log = get_logger(__name__)

# Idempotent: the client may send it twice, and the second answer must not call our own key somebody else's.
_ACQUIRE = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
# An expired key that nobody took meanwhile is taken again.
_RENEW = _ACQUIRE
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""

# The end of a tick, and of the process, does not wait long for a Redis that is away.
_RELEASE_SECONDS = 1.0


def running_key(prefix: str, queue: str, scheduler_id: str) -> str:
    """The key that says that a tick of this schedule is running."""
    return QueueKey(prefix, queue).key(f"tickkeeper:running:{scheduler_id}")


class Running:
    """One tick's hold on its schedule's key. ``ttl`` in seconds: how long a killed worker blocks its successor."""

    def __init__(self, client: Redis, key: str, *, ttl: float) -> None:
        self._client = client
        self._key = key
        self._ttl = ttl
        self._token = secrets.token_hex(16)

    async def acquire(self) -> bool:
        """True when no other tick of the schedule runs. Raises redis errors."""
        return await self._eval(_ACQUIRE)

    async def hold(self) -> None:
        """Renew at each third; returns when the key is somebody else's, or could not be renewed in time."""
        held_until = time.monotonic() + self._ttl
        while True:
            await asyncio.sleep(self._ttl / 3)
            started = time.monotonic()
            try:
                if not await self._eval(_RENEW):
                    _log.warning("running key lost: another tick of the schedule runs", key=self._key)
                    return
                held_until = started + self._ttl
            except Exception as error:  # noqa: BLE001 - what counts is whether time is left
                if started >= held_until:
                    _log.warning("running key could not be renewed in time", key=self._key, error=error)
                    return
            # One that went on would take the key again after its release, and no tick of the schedule would ever run.
            raise_if_cancelled()

    async def release(self) -> None:
        """Give the key back if it is still ours. Never raises: it expires by itself."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._eval(_RELEASE)
        except Exception as error:  # noqa: BLE001 - see above
            _log.info("running key left to expire", key=self._key, seconds=self._ttl, error=error)

    async def _eval(self, script: str) -> bool:
        milliseconds = str(int(self._ttl * 1000))
        return bool(
            await cast("asyncio.Future[int]", self._client.eval(script, 1, self._key, self._token, milliseconds))
        )
