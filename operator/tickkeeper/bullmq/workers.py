"""Who works a queue, by Redis' client list: bullmq's own getWorkers sees only its own language's."""

import base64
from collections.abc import Iterable, Mapping

from redis.asyncio import Redis

from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.server import clients


async def count_workers(client: Redis, queue: QueueKey) -> int:
    """Connections that a worker of the queue has named as its own. One CLIENT LIST: not for every sweep."""
    return count_named(queue, await clients(client))


def count_named(queue: QueueKey, clients: Iterable[Mapping[str, str]]) -> int:
    """How many client names are a worker's of ``queue``: Node names it in base64, Python in plain text, each with
    an optional ``:w:<name>``."""
    encoded = base64.b64encode(queue.queue.encode()).decode()
    names = {str(queue), f"{queue.prefix}:{encoded}"}
    return sum(1 for client in clients if client.get("name", "").split(":w:", 1)[0] in names)
