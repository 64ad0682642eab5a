"""What Redis says of itself as a whole: one server, or each master of a cluster."""

from collections.abc import Mapping
from hashlib import sha1
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import NoScriptError, ResponseError

from tickkeeper.bullmq.errors import is_site_wide

#: Redis 7 judges a script with a shebang by its flags before it runs; without any it may write, so it is refused
#: wherever a write would be: too few replicas, a failed save, out of memory, a replica. It writes nothing.
_MAY_WRITE = "#!lua\nreturn 1"
_SHA = sha1(_MAY_WRITE.encode(), usedforsecurity=False).hexdigest()


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


class WriteCheck:
    """Asks one Redis whether it would take a write, without writing."""

    def __init__(self, client: Redis | RedisCluster) -> None:
        self._client = client
        #: None before it has been asked; False for Redis < 7, which cannot be asked
        self.supported: bool | None = None

    async def __call__(self) -> None:
        """Raise Redis' refusal (NOREPLICAS, MISCONF, OOM, READONLY …) where writes are refused."""
        if self.supported is False:
            return
        try:
            await self._run()
        except ResponseError as error:
            # Redis < 7 cannot compile it, and servers that only resemble Redis may say anything else.
            if self.supported or is_site_wide(error) or str(error).startswith("BUSY"):
                raise
            self.supported = False
        else:
            self.supported = True

    async def _run(self) -> None:
        try:
            await self._evalsha()
        except NoScriptError:
            await self._client.script_load(_MAY_WRITE)
            await self._evalsha()

    async def _evalsha(self) -> None:
        if isinstance(self._client, RedisCluster):
            await self._client.execute_command("EVALSHA", _SHA, 0, target_nodes=RedisCluster.PRIMARIES)
        else:
            await self._client.evalsha(_SHA, 0)
