"""A row on its way into the outbox: its fields, their bounds, and what is said of a bad one.

The same rules stand in the SQL function; here they are checked first, because an error of the database ends the
caller's transaction.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
MAX_HEADERS_BYTES = 64 * 1024
MAX_NAME_LENGTH = 128
MAX_KEY_LENGTH = 512
MAX_ATTEMPTS = 1_000
DEFAULT_MAX_ATTEMPTS = 20
#: Ten years: beyond it a delay is a mistake of units.
MAX_DELAY = timedelta(days=3_650)

OnDuplicate = Literal["keep", "replace", "error"]
Outcome = Literal["inserted", "kept", "replaced"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: An escaped NUL, not a backslash that is itself escaped before the letters u0000.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SHOWN_CHARACTERS = 80


class InvalidRow(ValueError):
    """A field of a row to enqueue breaks a rule; nothing was sent. The message names field, value and rule."""

    def __init__(self, field: str, value: str, rule: str) -> None:
        self.field = field
        self.rule = rule
        super().__init__(f"{field} is {value}: {rule}")


class DuplicateRow(Exception):
    """An open row holds the dedup_key, and ``on_duplicate`` is "error", or "replace" with another ordering_key.

    The transaction must be rolled back.
    """


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a row: its id, and whether it is new or an open row with its dedup_key was kept or replaced."""

    id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to enqueue.

    ``payload`` is any JSON value of at most MAX_PAYLOAD_BYTES as text. Due at once, or at ``available_at`` (aware), or
    ``delay`` after the database's now. ``dedup_key``: at most one open row (not yet claimed) of a tenant has it, and
    ``on_duplicate`` says what becomes of another: ``keep`` the open one, ``replace`` its content, or an ``error``.
    ``ordering_key``: rows of a tenant with the same key are delivered one after another, in the order of their commits;
    enqueuing waits for other transactions that have enqueued to that key. One that is due later, or fails, makes those
    behind it wait.
    """

    tenant_id: str
    kind: str
    payload: Any
    headers: dict[str, str] | None = None
    dedup_key: str | None = None
    on_duplicate: OnDuplicate = "keep"
    available_at: datetime | None = None
    delay: timedelta | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    ordering_key: str | None = None


def parameters(row: NewRow, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> dict[str, Any]:
    """The row as the parameters of the query, payload and headers as JSON text, the delay in seconds.

    ``max_payload_bytes`` may lower the limit, not raise it. Raises InvalidRow.
    """
    check_name("tenant_id", row.tenant_id)
    check_name("kind", row.kind)
    payload = _json("payload", row.payload, min(max_payload_bytes, MAX_PAYLOAD_BYTES))
    _check_headers(row.headers)
    _check_dedup(row.dedup_key, row.on_duplicate)
    _check_due(row.available_at, row.delay)
    _check_attempts(row.max_attempts)
    _check_key("ordering_key", row.ordering_key)
    return {
        "tenant_id": row.tenant_id,
        "kind": row.kind,
        "payload": payload,
        "headers": _json("headers", row.headers or {}, MAX_HEADERS_BYTES),
        "dedup_key": row.dedup_key,
        "on_duplicate": row.on_duplicate,
        "available_at": row.available_at,
        "delay": None if row.delay is None else row.delay.total_seconds(),
        "max_attempts": row.max_attempts,
        "ordering_key": row.ordering_key,
    }


# The checks below take Any: what producers pass is not always what the types say.


def _check_attempts(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ATTEMPTS:
        raise InvalidRow("max_attempts", _shown(value), f"must be an integer from 1 to {MAX_ATTEMPTS}")


def check_name(field: str, value: Any) -> None:
    """The rule of tenants and kinds; raises InvalidRow."""
    rule = f"must be 1 to {MAX_NAME_LENGTH} characters without control characters"
    if not isinstance(value, str):
        raise InvalidRow(field, _shown(value), f"must be a string of 1 to {MAX_NAME_LENGTH} characters")
    if not value:
        raise InvalidRow(field, "empty", rule)
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidRow(field, f"{len(value)} characters long", rule)
    if _CONTROL.search(value):
        raise InvalidRow(field, _shown(value), rule)
    _check_unicode(field, value)


def _check_unicode(field: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRow(field, _shown(value), "must be valid Unicode text") from None


def _check_headers(headers: Any) -> None:
    if headers is None:
        return
    if not isinstance(headers, dict):
        raise InvalidRow("headers", _shown(headers), "must be a dict of strings")
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidRow("headers", f"keyed by {_shown(name)}", "must be a dict of strings")
        if not isinstance(value, str):
            raise InvalidRow(f"headers[{_shown(name)}]", _shown(value), "must be a string")


def _check_dedup(key: Any, on_duplicate: Any) -> None:
    if on_duplicate not in ("keep", "replace", "error"):
        raise InvalidRow("on_duplicate", _shown(on_duplicate), "must be keep, replace or error")
    _check_key("dedup_key", key)


def _check_key(field: str, key: Any) -> None:
    if key is None:
        return
    rule = f"must be a string of 1 to {MAX_KEY_LENGTH} characters without NUL, or None"
    if not isinstance(key, str) or "\x00" in key:
        raise InvalidRow(field, _shown(key), rule)
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise InvalidRow(field, f"{len(key)} characters long", rule)
    _check_unicode(field, key)


def _check_due(available_at: Any, delay: Any) -> None:
    if available_at is not None:
        if delay is not None:
            raise InvalidRow("delay", _shown(delay), "must be None where available_at is given")
        if not isinstance(available_at, datetime) or available_at.utcoffset() is None:
            raise InvalidRow("available_at", _shown(available_at), "must be a datetime with a time zone")
        if not 2 <= available_at.year <= 9998:
            raise InvalidRow("available_at", _shown(available_at), "must lie in the years 2 to 9998")
    if delay is not None and not (isinstance(delay, timedelta) and timedelta() <= delay <= MAX_DELAY):
        raise InvalidRow("delay", _shown(delay), f"must be a timedelta from 0 to {MAX_DELAY.days} days")


def _json(field: str, value: Any, limit: int) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except TypeError as error:
        raise InvalidRow(
            field, f"not JSON ({error})", "must be made of dict, list, str, numbers, bool and None"
        ) from None
    except UnicodeEncodeError:
        raise InvalidRow(
            field, "not valid Unicode (it holds a lone surrogate)", "must hold Unicode text only"
        ) from None
    except RecursionError:
        raise InvalidRow(field, "nested too deeply", "must be JSON of fewer levels") from None
    except ValueError as error:
        raise InvalidRow(field, f"not JSON ({error})", "must hold finite numbers and no reference to itself") from None
    if size > limit:
        raise InvalidRow(field, f"{size} bytes long as JSON text", f"must be at most {limit} bytes")
    if _ESCAPED_NUL.search(text):
        raise InvalidRow(field, "text with a NUL character", "must hold no NUL, PostgreSQL's jsonb cannot store it")
    return text


def _shown(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
