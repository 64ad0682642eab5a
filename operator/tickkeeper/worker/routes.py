"""The routes file: rows to HTTP receivers without code. Kind pattern to URL, validated before anything starts."""

import base64
import binascii
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from tickkeeper.worker.handlers import HandlerError, Kinds

# A file of routes is written by hand.
_MOST_BYTES = 1_000_000
#: How Standard Webhooks writes a key as text.
_ENCODED = b"whsec_"
# Ours, each with every request: one of a route's own would be sent beside it, or instead of it.
_OUR_HEADERS = frozenset({"content-type", "content-length", "transfer-encoding", "idempotency-key"})
_OUR_HEADERS_BEGIN = "webhook-"


class RoutesError(ValueError):
    """The routes file cannot be used; ``faults`` has one line each, naming the field."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _readable(kinds: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Kinds.of(*kinds)
    except HandlerError as error:
        raise ValueError(str(error)) from None
    return kinds


def _http_url(url: SecretStr) -> SecretStr:
    text = url.get_secret_value()
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises on a port that is none
    except ValueError:
        raise ValueError("must be a URL") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be http://host/… or https://host/…")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("must have no spaces and no control characters")
    return url


def _theirs(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        if name.lower() in _OUR_HEADERS or name.lower().startswith(_OUR_HEADERS_BEGIN):
            ours = ", ".join(sorted(_OUR_HEADERS))
            raise ValueError(f"{name} is set with each request: must be none of {ours} and {_OUR_HEADERS_BEGIN}*")
    return headers


class Route(BaseModel):
    """Rows of ``kinds`` are sent to ``url`` by POST.

    The key of the signature comes from the environment (``secretEnv``) or a file (``secretFile``), never from the file
    of routes, which people put into version control.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    kinds: Annotated[tuple[str, ...], BeforeValidator(_one_or_many), AfterValidator(_readable), Field(min_length=1)]
    url: Annotated[SecretStr, AfterValidator(_http_url)]
    secret_env: str | None = None
    secret_file: Path | None = None
    timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 10_000
    headers: Annotated[
        dict[
            Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")],
            Annotated[str, Field(pattern=r"^[\t\x20-\x7e]*$", max_length=8192)],
        ],
        AfterValidator(_theirs),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_secret(self) -> "Route":
        if self.secret_env and self.secret_file:
            raise ValueError("secretEnv and secretFile: only one of them")
        return self

    @property
    def where(self) -> str:
        """The receiver as it may be shown: no credentials, no query."""
        parts = urlsplit(self.url.get_secret_value())
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def secret(self, environment: Mapping[str, str], folder: Path = Path()) -> bytes | None:
        """The signature's key: see ``key_of``. ``folder`` is where a relative ``secretFile`` begins.

        Raises RoutesError when it is named and cannot be read, is empty, or is no key.
        """
        if self.secret_env:
            value = environment.get(self.secret_env, "").encode()
            named, absent = f"secretEnv: {self.secret_env}", "is not set or empty"
        elif self.secret_file:
            path = folder / self.secret_file
            named, absent = f"secretFile: {path}", "cannot be read or is empty"
            try:
                value = path.read_bytes()
            except OSError:
                value = b""
        else:
            return None
        try:
            key = key_of(value)
        except ValueError as error:
            raise RoutesError([f"{named} {error}"]) from None
        if not key:
            raise RoutesError([f"{named} {absent}"])
        return key


def key_of(text: bytes) -> bytes:
    """The bytes to sign with: of ``whsec_<base64>`` what is encoded, of anything else itself, without a last newline.

    ValueError, which does not show it: what stands behind ``whsec_`` is not base64, or nothing.
    """
    if not text.startswith(_ENCODED):
        return text.removesuffix(b"\n").removesuffix(b"\r")
    try:
        key = base64.b64decode(text.removeprefix(_ENCODED).strip(), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("begins with whsec_: must be base64 behind it, as Standard Webhooks has it")
    return key


class Routes(BaseModel):
    """``{routes: [{kinds: mail.*, url: https://…, secretEnv: NAME, timeoutMs: 10000, headers: {…}}]}``."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    routes: tuple[Route, ...] = Field(min_length=1)


def read_routes(path: Path, *, environment: Mapping[str, str] | None = None) -> list[tuple[Route, bytes | None]]:
    """The routes of a YAML or JSON file, each with its key. Raises RoutesError with one line a fault."""
    try:
        text = path.read_bytes()[: _MOST_BYTES + 1]
        if len(text) > _MOST_BYTES:
            raise RoutesError([f"must be at most {_MOST_BYTES} bytes"])
        given = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise RoutesError([f"cannot be read: {error.strerror}"]) from None
    except (ValueError, yaml.YAMLError) as error:
        if isinstance(error, RoutesError):
            raise
        raise RoutesError([f"is neither YAML nor JSON: {_where(error)}"]) from None
    if not isinstance(given, dict):
        raise RoutesError(["file: must be a mapping with the key `routes`"])
    try:
        routes = Routes.model_validate(given).routes
    except ValidationError as error:
        raise RoutesError([_fault(fault) for fault in error.errors(include_url=False) if not _echo(fault)]) from None
    return _with_secrets(routes, os.environ if environment is None else environment, path.parent)


def _with_secrets(
    routes: tuple[Route, ...], environment: Mapping[str, str], folder: Path
) -> list[tuple[Route, bytes | None]]:
    found: list[tuple[Route, bytes | None]] = []
    faults: list[str] = []
    for index, route in enumerate(routes):
        try:
            found.append((route, route.secret(environment, folder)))
        except RoutesError as error:
            faults += [f"routes.{index}.{fault}" for fault in error.faults]
    if faults:
        raise RoutesError(faults)
    return found


def _fault(fault: Any) -> str:
    where = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    return f"{where or 'file'}: {_rule(fault)}"


def _rule(fault: Any) -> str:
    place = fault["loc"]
    if fault["type"] == "extra_forbidden":
        model = Routes if len(place) == 1 else Route
        known = sorted(field.alias or name for name, field in model.model_fields.items())
        return f"unknown field; known here: {', '.join(known)}"
    if fault["type"] == "too_short":
        return f"must have at least 1 {str(place[-1]).removesuffix('s')}"
    return str(fault["msg"]).removeprefix("Value error, ")


def _echo(fault: Any) -> bool:
    """Pydantic also calls a list too short whose members it has just refused."""
    return fault["type"] == "too_short" and bool(fault["input"])


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', '')}"
    return str(error)
