"""Redis clients with explicit time-outs and retries.

bullmq takes a ready client or builds its own; its own retries 20 times with exponential back-off (an upsert against a
dead Redis had not failed after 40 s, measured on 3.4.4), so every client is built here.
"""

import ssl
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator, model_validator
from redis.asyncio import ConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.maint_notifications import MaintNotificationsConfig

from tickkeeper.bullmq import tls
from tickkeeper.bullmq.address import Address, parse

#: The least that a sentinel gets to answer in.
_SENTINEL_SECONDS = 0.2


class RedisSettings(BaseModel):
    """Where a Redis is and how to log in.

    ``url``: see ``address.parse``; ``username`` and ``password`` override the URL's. ``ca_cert``, ``client_cert`` and
    ``client_key`` are PEM texts and need a ``rediss`` scheme.
    Raises pydantic's ValidationError, which never shows the URL's credentials.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    url: SecretStr
    username: str | None = None
    password: SecretStr | None = None
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: SecretStr | None = None

    @field_validator("url")
    @classmethod
    def _readable_url(cls, url: SecretStr) -> SecretStr:
        parse(url.get_secret_value())
        return url

    @model_validator(mode="after")
    def _tls_fits(self) -> "RedisSettings":
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("tls.crt and tls.key must be given together")
        if (self.ca_cert or self.client_cert) and not self.address.tls:
            raise ValueError("ca.crt and tls.crt need a url that begins with rediss")
        if self.address.tls:
            self.tls_context()
        return self

    @property
    def address(self) -> Address:
        """What says which Redis this is, without credentials."""
        return parse(self.url.get_secret_value()).address

    def login(self) -> tuple[str | None, str | None]:
        """User name and password."""
        parsed = parse(self.url.get_secret_value())
        password = self.password.get_secret_value() if self.password else parsed.password
        return self.username or parsed.username, password or None

    def tls_context(self) -> ssl.SSLContext:
        """The context of its connections. Raises ValueError."""
        key = self.client_key.get_secret_value() if self.client_key else None
        return tls.context(self.ca_cert, self.client_cert, key)

    def of_node(self, host: str, port: int) -> "RedisSettings":
        """One node of the cluster, by itself, with the same credentials."""
        username, password = self.login()
        node = Address("single", self.address.tls, ((host, port),))
        return self.model_copy(
            update={
                "url": SecretStr(node.url),
                "username": username,
                "password": SecretStr(password) if password else None,
            }
        )


class Use(Enum):
    """What a client is for: it decides its time-outs and retries."""

    #: Many short commands of a loop that has a retry of its own: fail quickly.
    COMMANDS = "commands"
    #: bullmq's blocking wait (BZPOPMIN up to 10 s): a socket time-out would drop the connection of an idle worker
    #: (3 ticks in 560 s with redis-py's default of 5 s, measured).
    BLOCKING = "blocking"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds that one attempt may take, and how many more there are."""

    connect: float = 1.0
    reply: float = 1.5
    retries: int = 1
    backoff: float = 0.05


def connect(
    settings: RedisSettings,
    *,
    use: Use = Use.COMMANDS,
    name: str | None = None,
    bounds: Bounds | None = None,
    max_connections: int = 50,
    protocol: Literal[2, 3] = 2,
) -> Redis:
    """A client for one Redis; nothing is sent before its first command.

    Of a cluster it is a RedisCluster, which has the same commands: it is typed as what everybody here uses.
    ``name`` is the connection's CLIENT SETNAME. Replies are text. Close it with ``aclose()``.
    """
    bounds = bounds or Bounds()
    address = settings.address
    username, password = settings.login()
    # A retry on the blocking client would hide an outage from the worker's own supervision.
    retries = bounds.retries if use is Use.COMMANDS else 0
    options: dict[str, Any] = {
        "username": username,
        "password": password,
        "client_name": name,
        "decode_responses": True,  # bullmq reads text
        # One byte that is not UTF-8 in one scheduler must not be the others' fault: it differs, and is overwritten.
        "encoding_errors": "replace",
        "protocol": protocol,  # 2: one reply shape for scripts, whatever the library's default becomes
        "socket_connect_timeout": bounds.connect,
        "socket_timeout": bounds.reply if use is Use.COMMANDS else None,
        "socket_keepalive": True,
        # Not on a time-out: the second would double how long a frozen Redis goes unnoticed.
        "retry": Retry(ConstantBackoff(bounds.backoff), retries, (RedisConnectionError,)),
        "max_connections": max_connections,
        # A managed service's own protocol: asking for it costs a round trip and an error in the log of the others.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
    secure = {"tls_context": settings.tls_context()} if address.tls else {}
    match address.mode:
        case "single":
            return _single(address, options, secure)
        case "sentinel":
            return _sentinel(address, options, secure, bounds)
        case "cluster":
            return cast(Redis, _cluster(address, options, secure))


async def close(client: Redis) -> None:
    """Close a client, and its sentinels'. Never raises: what is closed badly is gone too."""
    sentinels = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for one in (client, *(sentinels.sentinels if sentinels is not None else ())):
        with suppress(RedisError, OSError, TimeoutError):
            await one.aclose()


def _single(address: Address, options: dict[str, Any], secure: dict[str, Any]) -> Redis:
    ((host, port),) = address.hosts
    chosen = {"connection_class": tls.TlsConnection, **secure} if secure else {}
    pool: ConnectionPool = ConnectionPool(host=host, port=port, db=address.db, **options, **chosen)
    return Redis.from_pool(pool)


def _sentinel(address: Address, options: dict[str, Any], secure: dict[str, Any], bounds: Bounds) -> Redis:
    # The sentinels themselves are asked without the database's credentials, one after the other: all of them together
    # get the time of one answer, or two that are frozen would keep us from the third. The library's own retries would
    # hold a call for more than 20 s (measured).
    share = max(_SENTINEL_SECONDS, bounds.reply / len(address.hosts))
    asked = {
        "socket_connect_timeout": share,
        "socket_timeout": share,
        "retry": Retry(ConstantBackoff(0), 0),
        "decode_responses": True,
    }
    sentinel = Sentinel(list(address.hosts), sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    chosen = {"connection_class": tls.SentinelTlsConnection, **secure} if secure else {}
    pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
        address.master, sentinel, db=address.db, **options, **chosen
    )
    return Redis.from_pool(pool)


def _cluster(address: Address, options: dict[str, Any], secure: dict[str, Any]) -> RedisCluster:
    retry = options.pop("retry")
    nodes = [ClusterNode(host, port, **options) for host, port in address.hosts]
    client = RedisCluster(startup_nodes=nodes, retry=retry, **options)
    if secure:
        # RedisCluster takes files only; what it hands to its nodes can be completed afterwards.
        chosen = {"connection_class": tls.TlsConnection, **secure}
        client.nodes_manager.connection_kwargs.update(chosen)
        for node in client.nodes_manager.startup_nodes.values():
            node.connection_class = tls.TlsConnection
            node.connection_kwargs.update(secure)
    return client
