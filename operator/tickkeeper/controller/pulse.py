"""Notices within a second that a Redis went away or was restarted: one PING a second on a connection of its own.

The commands' own connections would hide it: they retry, and a server that is back answers as if nothing had happened,
though it may have lost everything.
"""

import asyncio
from collections.abc import Callable

from redis.exceptions import ConnectionError as RedisConnectionError

from tickkeeper.bullmq.clients import Bounds, RedisSettings, connect
from tickkeeper.bullmq.errors import REDIS_ERRORS

_BEAT = 1.0
#: Seconds between tries while it is away.
_RETRY = 0.2


class Pulse:
    """One connection that lives as long as its server does."""

    def __init__(self, settings: RedisSettings, *, bounds: Bounds | None = None) -> None:
        given = bounds or Bounds()
        once = Bounds(connect=given.connect, reply=min(given.reply, _BEAT), retries=0)
        self._client = connect(settings, name="tickkeeper-pulse", bounds=once, max_connections=1)

    async def run(self, on_break: Callable[[], None]) -> None:
        """Beat until cancelled; call ``on_break`` when the connection breaks, and when it is back."""
        alive = True
        try:
            while True:
                try:
                    await self._client.ping()
                except REDIS_ERRORS as error:
                    if alive:
                        on_break()
                    alive = False
                    if not isinstance(error, RedisConnectionError):
                        await self._client.connection_pool.disconnect()
                    await asyncio.sleep(_RETRY)
                    continue
                if not alive:
                    alive = True
                    on_break()
                await asyncio.sleep(_BEAT)
        finally:
            await self._client.aclose()
