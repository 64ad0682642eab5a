"""What Redis says of itself as a whole: one server, or each master of a cluster."""

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis, RedisCluster


async def info(client: Redis | RedisCluster, section: str) -> list[Mapping[str, Any]]:
    """INFO of the server, or of each master of the cluster. Raises redis' exceptions."""
    if isinstance(client, RedisCluster):
        answers = await client.info(section, target_nodes=RedisCluster.PRIMARIES)
        # One master answers by itself, several by name.
        return list(answers.values()) if all(isinstance(a, Mapping) for a in answers.values()) else [answers]
    return [await client.info(section)]


async def clients(client: Redis | RedisCluster) -> list[Mapping[str, str]]:
    """CLIENT LIST of the server, or of all nodes of the cluster. Raises redis' exceptions."""
    if isinstance(client, RedisCluster):
        answers = await client.client_list(target_nodes=RedisCluster.ALL_NODES)
        lists = answers.values() if isinstance(answers, Mapping) else [answers]
        return [one for many in lists for one in many]
    return list(await client.client_list())
