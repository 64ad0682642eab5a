"""Delivering a row to an HTTP receiver: one signed POST, and what its answer means for the row.

The body is ``{"id", "tenantId", "kind", "attempt", "createdAt", "payload", "headers"}``; ``Idempotency-Key`` is the
row's id, the same for each try. The signature is that of the Standard Webhooks specification: ``webhook-id``,
``webhook-timestamp`` and ``webhook-signature: v1,base64(hmac-sha256(key, "id.timestamp.body"))``.
"""

import base64
import hashlib
import hmac
import json
import math
import os
import random
import socket
import ssl
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import aiohttp

from tickkeeper.outbox.backoff import Backoff
from tickkeeper.outbox.store import Row
from tickkeeper.worker.handlers import Handler, Kinds, as_handler
from tickkeeper.worker.outcome import MAX_DELAY, Dead, Outcome, Retry
from tickkeeper.worker.routes import Route

# The request has its own time-out; the handler's only catches what that does not (a name that never resolves).
_SPARE_SECONDS = 5.0
# Of a row's headers these go along as HTTP headers too: tracing works without opening the body.
_FORWARDED = ("traceparent", "tracestate")
_TRY_AGAIN = frozenset({408, 429})
_BACKOFF = Backoff()


class HttpDelivery:
    """Sends rows; one connection pool for all routes. ``close`` it on the loop that used it."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def handler(self, route: Route, secret: bytes | None) -> Handler:
        """The handler of one route."""

        async def deliver(row: Row) -> Outcome | None:
            return await self._deliver(route, secret, row)

        name = f"route {', '.join(route.kinds)} to {route.where}"
        return as_handler(deliver, Kinds.of(*route.kinds), timeout=route.timeout_ms / 1000 + _SPARE_SECONDS, name=name)

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _deliver(self, route: Route, secret: bytes | None, row: Row) -> Outcome | None:
        body = body_of(row)
        headers = {**route.headers, **headers_of(row, body, secret, timestamp=int(time.time()))}
        try:
            async with self._pool().post(
                route.url.get_secret_value(),
                data=body,
                headers=headers,
                # A redirect would send the signed row where nobody meant it to go.
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=route.timeout_ms / 1000),
            ) as response:
                status, retry_after = response.status, response.headers.get("Retry-After")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Retry(reason=f"POST {route.where}: {_cause(error)}")
        backoff = timedelta(seconds=_BACKOFF.seconds(row.attempts, random.random()))  # noqa: S311 - spreads rows
        return judge(status, retry_after, where=route.where, now=datetime.now(UTC), backoff=backoff)

    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No bound of its own: handlers at once are bounded already, and those of a receiver that hangs would
                # make the others' wait, and be told as theirs.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "tickkeeper"},
            )
        return self._session


def _cause(error: Exception) -> str:
    """What went wrong, without the error's own text, which may hold the whole URL."""
    name = type(error).__name__
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, TimeoutError):
        return f"{name}: no answer in time"
    if isinstance(cause, ssl.SSLError):
        told = getattr(cause, "verify_message", None) or cause.reason
    elif isinstance(cause, socket.gaierror):
        told = cause.strerror
    elif isinstance(cause, OSError) and cause.errno:
        told = os.strerror(cause.errno)
    else:
        told = None
    return f"{name}: {told}" if told else name


def judge(status: int, retry_after: str | None, *, where: str, now: datetime, backoff: timedelta) -> Outcome | None:
    """What a receiver's answer means: 2xx done; 4xx dead, but for 408 and 429; the rest is tried again. Pure.

    Not before Retry-After says, and not before ``backoff`` is over: a receiver that says 0, or whose clock is behind
    ours, would have spent all attempts within a second.
    """
    if 200 <= status < 300:
        return None
    reason = f"POST {where}: answered {status}"
    if 400 <= status < 500 and status not in _TRY_AGAIN:
        return Dead(reason)
    asked = delay_of(retry_after, now)
    return Retry(after=None if asked is None else max(asked, backoff), reason=reason)


def delay_of(retry_after: str | None, now: datetime) -> timedelta | None:
    """A Retry-After (seconds or an HTTP date) as a delay, at most a week; None where it is absent or unreadable."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    try:
        seconds = float(text) if text.isascii() and text.isdigit() else (_date(text) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    if not math.isfinite(seconds):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), MAX_DELAY.total_seconds()))


def _date(text: str) -> datetime:
    date = parsedate_to_datetime(text)
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def body_of(row: Row) -> bytes:
    """The JSON that is sent and signed."""
    return json.dumps(
        {
            "id": str(row.id),
            "tenantId": row.tenant_id,
            "kind": row.kind,
            "attempt": row.attempts,
            "createdAt": row.created_at.isoformat(),
            "payload": row.payload,
            "headers": row.headers,
        },
        separators=(",", ":"),
    ).encode()


def headers_of(row: Row, body: bytes, secret: bytes | None, *, timestamp: int) -> dict[str, str]:
    """The HTTP headers of one try."""
    key = str(row.id)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        "webhook-id": key,
        "webhook-timestamp": str(timestamp),
        **_traces(row.headers),
    }
    if secret is not None:
        headers["webhook-signature"] = signature(secret, key, timestamp, body)
    return headers


def signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """``v1,…`` of the Standard Webhooks specification."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def _traces(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name in _FORWARDED
        if isinstance(value := headers.get(name), str) and value.isascii() and value.isprintable()
    }
