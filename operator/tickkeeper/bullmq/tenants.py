"""Which tenants have a schedule: the ``tenantId`` in the data of every scheduler of some queues."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis

from tickkeeper.bullmq.census import queues
from tickkeeper.bullmq.keys import QueueKey

#: Members asked for at a time; Redis may answer with a few more.
_PAGE = 200
_PAUSE = 0.002


@dataclass(frozen=True, slots=True)
class Scheduled:
    """``tenants`` have a schedule. ``nameless`` schedulers carry no tenant: their worker knows whose they are."""

    tenants: frozenset[str] = frozenset()
    nameless: int = 0
    queues: tuple[str, ...] = field(default=())


async def scheduled(client: Redis, prefix: str, names: Iterable[str] = (), *, more: bool = True) -> Scheduled:
    """Read the schedulers of the queues ``names``, and, with ``more``, of all other queues of the prefix.

    ``more`` walks the key space, in small steps. Raises redis' exceptions.
    """
    found = {QueueKey(prefix, name) for name in names}
    if more:
        found |= {queue async for queue in queues(client, prefix)}
    tenants: set[str] = set()
    nameless = 0
    for queue in sorted(found):
        async for tenant in _tenants(client, queue):
            if tenant is None:
                nameless += 1
            else:
                tenants.add(tenant)
    return Scheduled(frozenset(tenants), nameless, tuple(queue.queue for queue in sorted(found)))


async def _tenants(client: Redis, queue: QueueKey) -> AsyncIterator[str | None]:
    cursor = 0
    while True:
        cursor, members = await client.zscan(queue.key("repeat"), cursor, count=_PAGE)
        pipe = client.pipeline(transaction=False)
        for scheduler_id in [str(member) for member, _score in members]:
            pipe.hget(queue.key(f"repeat:{scheduler_id}"), "data")
        for text in await pipe.execute(raise_on_error=False) if members else ():
            yield tenant_of(text) if isinstance(text, str) else None
        if not cursor:
            return
        await asyncio.sleep(_PAUSE)


def tenant_of(data: str) -> str | None:
    """The tenant of a scheduler's data (JSON text); None where there is none that can be read."""
    with suppress(ValueError, RecursionError):
        found = json.loads(data)
        tenant = found.get("tenantId") if isinstance(found, dict) else None
        return tenant if isinstance(tenant, str) and tenant else None
    return None
