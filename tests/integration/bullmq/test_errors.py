from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from embedded.ports import free_port
from embedded.redis import Redis as RedisServer
from tickkeeper.bullmq.clients import Bounds, RedisSettings, close, connect
from tickkeeper.bullmq.errors import is_refused


async def error_of(url: str, call: Callable[[Redis], Awaitable[object]]) -> RedisError:
    client = connect(RedisSettings(url=url), bounds=Bounds(connect=0.2, reply=0.2))
    try:
        with pytest.raises(RedisError) as caught:
            await call(client)
    finally:
        await close(client)
    return caught.value


async def test_where_nobody_listens_a_try_is_refused() -> None:
    assert is_refused(await error_of(f"redis://127.0.0.1:{free_port()}/0", Redis.ping))


async def test_a_wrong_password_is_no_refusal_to_be_tried_quickly(redis_url: str) -> None:
    assert not is_refused(await error_of(redis_url.replace("://", "://nobody:wrong@"), Redis.ping))


async def test_neither_is_a_redis_that_does_not_answer(own_redis: RedisServer) -> None:
    own_redis.freeze()
    try:
        assert not is_refused(await error_of(own_redis.url, Redis.ping))
    finally:
        own_redis.thaw()


async def test_neither_is_tls_where_none_is_spoken(redis_url: str) -> None:
    assert not is_refused(await error_of(redis_url.replace("redis://", "rediss://"), Redis.ping))
