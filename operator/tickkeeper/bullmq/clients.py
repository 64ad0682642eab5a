"""Redis clients with explicit time-outs and retries.

bullmq takes a ready client or builds its own; its own retries 20 times with exponential back-off (an upsert against a
dead Redis had not failed after 40 s, measured on 3.4.4), so every client is built here.
"""

import ssl
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from urllib.parse import ParseResult, unquote, urlparse

import redis.asyncio as aioredis
from pydantic import BaseModel, ConfigDict, SecretStr, field_validator, model_validator
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

_SCHEMES = ("redis", "rediss")
_DEFAULT_PORT = 6379


class RedisSettings(BaseModel):
    """Where a Redis is and how to log in.

    ``url``: ``redis[s]://[user[:password]@]host[:port][/db]``; ``username`` and ``password`` override the URL's.
    ``ca_cert``, ``client_cert`` and ``client_key`` are PEM texts and need ``rediss``.
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
        try:
            parsed = urlparse(url.get_secret_value())
        except ValueError:
            raise ValueError("url cannot be read: brackets must hold an IPv6 address") from None
        _address(parsed)
        return url

    @model_validator(mode="after")
    def _tls_fits(self) -> "RedisSettings":
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("tls.crt and tls.key must be given together")
        if (self.ca_cert or self.client_cert) and not self.address.tls:
            raise ValueError("ca.crt and tls.crt need a rediss:// url")
        if self.address.tls:
            _tls_context(self)
        return self

    @property
    def address(self) -> "Address":
        """Host, port and database: what says which Redis this is, without credentials."""
        return _address(urlparse(self.url.get_secret_value()))


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis database's place; ``str()`` of it is safe to show."""

    host: str
    port: int
    db: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.db}"


def _address(url: ParseResult) -> Address:
    """Read the URL's place, refusing what would otherwise be ignored in silence."""
    if url.scheme not in _SCHEMES:
        raise ValueError(f"url must begin with one of {', '.join(f'{s}://' for s in _SCHEMES)}")
    if not url.hostname:
        raise ValueError("url must name a host")
    try:
        port = url.port or _DEFAULT_PORT
    except ValueError:
        raise ValueError("url must have a port from 1 to 65535") from None
    path = url.path.strip("/")
    if path and not (path.isascii() and path.isdigit()):
        raise ValueError("url must end in a database number, like /0")
    if url.query or url.fragment:
        raise ValueError("url must have no options after ? or #: time-outs and retries are set by the program")
    return Address(unquote(url.hostname), port, int(path or 0), url.scheme == "rediss")


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
) -> aioredis.Redis:
    """A client for one Redis; nothing is sent before its first command.

    ``name`` is the connection's CLIENT SETNAME. Replies are text. Close it with ``aclose()``.
    """
    bounds = bounds or Bounds()
    address = settings.address
    url = urlparse(settings.url.get_secret_value())
    password = settings.password.get_secret_value() if settings.password else unquote(url.password or "")
    # An unblocked retry on the blocking client would hide an outage from the worker's own supervision.
    retries = bounds.retries if use is Use.COMMANDS else 0
    pool: aioredis.ConnectionPool = aioredis.ConnectionPool(
        host=address.host,
        port=address.port,
        db=address.db,
        username=settings.username or unquote(url.username or "") or None,
        password=password or None,
        client_name=name,
        decode_responses=True,  # bullmq reads text
        protocol=protocol,  # 2: one reply shape for scripts, whatever the library's default becomes
        socket_connect_timeout=bounds.connect,
        socket_timeout=bounds.reply if use is Use.COMMANDS else None,
        socket_keepalive=True,
        # Not on a time-out: the second would double how long a frozen Redis goes unnoticed.
        retry=Retry(ConstantBackoff(bounds.backoff), retries, (RedisConnectionError,)),
        max_connections=max_connections,
        **(_tls(settings) if address.tls else {}),
    )
    return aioredis.Redis.from_pool(pool)


class _Tls(SSLConnection):
    """A TLS connection that uses a context made once, from PEM texts instead of files."""

    def __init__(self, *, tls_context: ssl.SSLContext, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ssl_context.context = tls_context


def _tls(settings: RedisSettings) -> dict[str, Any]:
    return {"connection_class": _Tls, "tls_context": _tls_context(settings)}


def _tls_context(settings: RedisSettings) -> ssl.SSLContext:
    """Raises ValueError with the key and the rule for what is no PEM."""
    try:
        context = ssl.create_default_context(cadata=settings.ca_cert)
    except (ssl.SSLError, ValueError):
        raise ValueError("ca.crt must be one or more certificates in PEM") from None
    if settings.client_cert and settings.client_key:
        # ssl loads a key only from a file: it lives for the length of this call, readable to us alone.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
            pem.write(settings.client_key.get_secret_value() + "\n" + settings.client_cert)
            pem.flush()
            try:
                context.load_cert_chain(Path(pem.name), password=_no_pass_phrase)
            except (ssl.SSLError, ValueError, OSError):
                raise ValueError(
                    "tls.crt and tls.key must be a certificate in PEM and its key, without a pass phrase"
                ) from None
    return context


def _no_pass_phrase() -> str:
    # Without it, ssl would ask at the terminal.
    raise ValueError("the key has a pass phrase")
