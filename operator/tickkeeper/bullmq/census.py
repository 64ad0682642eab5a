"""Who owns the schedulers of a queue: a bounded walk over all of them, for finding orphans."""

from collections.abc import AsyncIterator

from redis.asyncio import Redis

from tickkeeper.api.tick import Stamp
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import stamp_of

#: Members asked for at a time; Redis may answer with a few more.
_PAGE = 200


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
