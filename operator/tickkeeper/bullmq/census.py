"""Which queues hold schedulers, and who owns these: bounded walks, for finding orphans."""

import asyncio
from collections.abc import AsyncIterator

from redis.asyncio import Redis

from tickkeeper.api.tick import Stamp
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import stamp_of

#: Members asked for at a time; Redis may answer with a few more.
_PAGE = 200
_SCAN_PAGE = 500
_PAUSE = 0.01


async def queues(client: Redis, prefix: str) -> AsyncIterator[QueueKey]:
    """The queues of one prefix that hold schedulers, each once. A SCAN over the whole key space, in small steps.

    Raises redis' exceptions.
    """
    found = set()
    pattern = f"{_escaped(prefix)}:*:repeat"
    seen = 0
    async for key in client.scan_iter(match=pattern, count=_SCAN_PAGE, _type="zset"):
        queue = QueueKey(prefix, str(key).removeprefix(f"{prefix}:").removesuffix(":repeat"))
        if ":" not in queue.queue and queue not in found:
            found.add(queue)
            yield queue
        seen += 1
        if not seen % 100:
            await asyncio.sleep(_PAUSE)


def _escaped(glob: str) -> str:
    return "".join(f"\\{char}" if char in "*?[]^\\" else char for char in glob)


async def stamps(client: Redis, queue: QueueKey) -> AsyncIterator[tuple[str, Stamp | None]]:
    """Each scheduler's id and ownership stamp; None for what TickKeeper never made. An id may come twice.

    Raises redis' exceptions.
    """
    cursor = 0
    while True:
        cursor, members = await client.zscan(queue.key("repeat"), cursor, count=_PAGE)
        pipe = client.pipeline(transaction=False)
        ids = [str(member) for member, _score in members]
        for scheduler_id in ids:
            pipe.hget(queue.key(f"repeat:{scheduler_id}"), "data")
        texts = await pipe.execute(raise_on_error=False) if members else []
        for scheduler_id, text in zip(ids, texts, strict=True):
            yield scheduler_id, stamp_of(text) if isinstance(text, str) else None
        if not cursor:
            return
