"""Whether a Redis would take a write, asked without writing."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from embedded.redis import Redis as RedisServer
from tickkeeper.bullmq.clients import RedisSettings, connect
from tickkeeper.bullmq.errors import explain, is_site_wide
from tickkeeper.bullmq.server import WriteCheck


@pytest.fixture
async def client(own_redis: RedisServer) -> AsyncIterator[Redis]:
    made = connect(RedisSettings(url=own_redis.url))
    yield made
    await made.aclose()


async def refusal(check: WriteCheck) -> str:
    with pytest.raises(RedisError) as told:
        await check()
    assert isinstance(told.value, ResponseError)
    assert is_site_wide(told.value)
    return explain(told.value)


async def test_a_healthy_redis_takes_writes_and_nothing_is_written(client: Redis) -> None:
    check = WriteCheck(client)
    await check()
    await client.script_flush()
    await check()
    assert check.supported
    assert await client.dbsize() == 0


async def test_too_few_replicas(client: Redis) -> None:
    check = WriteCheck(client)
    await check()
    await client.config_set("min-replicas-to-write", 1)
    assert "too few replicas" in await refusal(check)
    await client.config_set("min-replicas-to-write", 0)
    await check()


async def test_a_save_that_failed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with RedisServer(dir=str(folder)) as server:
        shutil.rmtree(folder)  # its disk is gone
        client = connect(RedisSettings(url=server.url))
        check = WriteCheck(client)
        await check()
        await client.config_set("save", "3600 1")
        await client.bgsave()
        async with asyncio.timeout(20):
            while (await client.info("persistence"))["rdb_last_bgsave_status"] == "ok":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert "cannot save its data" in await refusal(check)
        await client.config_set("save", "")
        await check()
        await client.aclose()


async def test_a_full_one(client: Redis) -> None:
    check = WriteCheck(client)
    await check()
    await client.config_set("maxmemory", 1)
    assert "out of memory" in await refusal(check)


async def test_a_replica(client: Redis) -> None:
    check = WriteCheck(client)
    await check()
    await client.replicaof("127.0.0.1", "1")
    assert "replica" in await refusal(check)


async def test_an_older_redis_is_asked_once(client: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def compiles_nothing(_: str) -> str:
        nonlocal asked
        asked += 1
        raise ResponseError("ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'")

    monkeypatch.setattr(client, "script_load", compiles_nothing)
    check = WriteCheck(client)
    await check()
    await check()
    assert (check.supported, asked) == (False, 1)


async def test_one_that_is_busy_is_asked_again(client: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy(*_: object) -> str:
        raise ResponseError("BUSY Redis is busy running a script.")

    check = WriteCheck(client)
    with monkeypatch.context() as patched:
        patched.setattr(client, "evalsha", busy)
        with pytest.raises(ResponseError):
            await check()
    await check()
    assert check.supported
