"""Whose schedules a Redis holds: the part of ``outbox_schedules`` that needs its client, which takes long to import."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from redis.exceptions import RedisError

from tickkeeper.bullmq.clients import close, connect
from tickkeeper.bullmq.environment import OptionalPath, OptionalSecret, OptionalText, listed, redis_settings
from tickkeeper.bullmq.errors import explain
from tickkeeper.bullmq.tenants import scheduled
from tickkeeper.cli._config import load, refuse
from tickkeeper.outbox.doctor import Schedules

#: Seconds that Redis may take in all.
_PATIENCE = 60.0


class _Environment(BaseSettings):
    """The variables of a worker that say where schedules are."""

    model_config = SettingsConfigDict(env_prefix="TICKKEEPER_", hide_input_in_errors=True, extra="ignore", frozen=True)

    redis_url: SecretStr
    redis_username: OptionalText = None
    redis_password: OptionalSecret = None
    redis_ca_file: OptionalPath = None
    redis_cert_file: OptionalPath = None
    redis_key_file: OptionalPath = None
    queues: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = ()
    prefix: str = Field("bull", min_length=1)
    default_tenant: OptionalText = None


def ask(tenants: Sequence[str], *, queues: Sequence[str] | None, prefix: str | None) -> Schedules:
    """Of ``tenants`` those that no schedule ticks for; not told where Redis does not answer."""
    return asyncio.run(_asked(load(_Environment, queues=queues or None, prefix=prefix), tenants))


async def _asked(found: _Environment, tenants: Sequence[str]) -> Schedules:
    try:
        settings = redis_settings(
            found.redis_url,
            found.redis_username,
            found.redis_password,
            ca_file=found.redis_ca_file,
            cert_file=found.redis_cert_file,
            key_file=found.redis_key_file,
        )
    except ValidationError as error:
        told = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
        refuse([f"TICKKEEPER_REDIS_*: {told}"])
    except OSError as error:
        refuse([f"TICKKEEPER_REDIS_*_FILE: cannot be read: {error.strerror}"])
    client = connect(settings)
    try:
        async with asyncio.timeout(_PATIENCE):
            seen = await scheduled(client, found.prefix, found.queues, more=not found.queues)
    except (RedisError, OSError, TimeoutError) as error:
        return Schedules(None, f"{settings.address} was asked for schedules: {explain(error)}")
    finally:
        await close(client)
    ticked = seen.tenants | ({found.default_tenant} if found.default_tenant and seen.nameless else set())
    names = ", ".join(seen.queues[:5]) + (", …" if len(seen.queues) > 5 else "")
    where = f"{settings.address}, prefix {found.prefix}, queues: {names or 'none'}"
    return Schedules(sorted(set(tenants) - ticked), where=where)
