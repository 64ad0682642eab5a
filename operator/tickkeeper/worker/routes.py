"""The routes file: rows to HTTP receivers without code. Kind pattern to URL, validated before anything starts."""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

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
from pydantic.alias_generators import to_camel, to_snake

from tickkeeper.worker.handlers import HandlerError, Kinds
from tickkeeper.worker.routes_text import LineOf, TextError, parse

# A file of routes is written by hand.
_MOST_BYTES = 1_000_000
#: How Standard Webhooks writes a key as text.
_ENCODED = b"whsec_"
# Ours, each with every request: one of a route's own would be sent beside it, or instead of it.
_OUR_HEADERS = frozenset({"content-type", "content-length", "transfer-encoding", "idempotency-key"})
_OUR_HEADERS_BEGIN = "webhook-"


_HOST = re.compile(r"[\w-]+(\.[\w-]+)*\.?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = r"^[\t\x20-\x7e]*$"
_LONGEST_VALUE = 8192


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
    for kind in kinds:
        if kind != kind.strip() or not kind.isprintable():
            raise ValueError(f"kind {kind!r}: must have no space around it, and no control character")
    return kinds


def _http_url(url: SecretStr) -> SecretStr:
    text = url.get_secret_value()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("must be a URL") from None
    if port == 0 or not (":" in (parts.hostname or "") or _HOST.fullmatch(parts.hostname or "")):
        raise ValueError("must be http://host/… or https://host/…, with a host's name or address as it is")
    if parts.scheme not in {"http", "https"}:
        raise ValueError("must be http://host/… or https://host/…")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError("must have no spaces and no control characters")
    return url


def _theirs(headers: dict[str, str]) -> dict[str, str]:
    first: dict[str, str] = {}
    for name in headers:
        if (known := first.setdefault(name.lower(), name)) != name:
            raise ValueError(f"{known} and {name} are one header: name it once")
        if name.lower() in _OUR_HEADERS or name.lower().startswith(_OUR_HEADERS_BEGIN):
            ours = ", ".join(sorted(_OUR_HEADERS))
            raise ValueError(f"{name} is set with each request: must be none of {ours} and {_OUR_HEADERS_BEGIN}*")
    return headers


def _variable(name: str) -> str:
    # The value is not shown: somebody may have put the key itself here.
    if not _VARIABLE.fullmatch(name):
        raise ValueError("must be the name of an environment variable, which holds the value")
    return name


_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
_Value = Annotated[str, Field(pattern=_VALUE, max_length=_LONGEST_VALUE)]
_Variable = Annotated[str, AfterValidator(_variable)]


class Route(BaseModel):
    """Rows of ``kinds`` are sent to ``url`` by POST.

    The key of the signature comes from the environment (``secretEnv``) or a file (``secretFile``), and tokens come from
    the environment (``headersEnv``): never from the file of routes, which people put into version control.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    kinds: Annotated[tuple[str, ...], BeforeValidator(_one_or_many), AfterValidator(_readable), Field(min_length=1)]
    url: Annotated[SecretStr, AfterValidator(_http_url)]
    secret_env: _Variable | None = None
    secret_file: Path | None = None
    timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 10_000
    #: may hold what came from the environment
    headers: Annotated[dict[_Name, _Value], AfterValidator(_theirs)] = Field(default_factory=dict, repr=False)
    headers_env: Annotated[dict[_Name, _Variable], AfterValidator(_theirs)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_each_header(self) -> "Route":
        twice = {name.lower() for name in self.headers} & {name.lower() for name in self.headers_env}
        if twice:
            raise ValueError(f"headers and headersEnv: {', '.join(sorted(twice))} is in both, must be in one of them")
        return self

    @model_validator(mode="after")
    def _one_secret(self) -> "Route":
        if self.secret_env and self.secret_file:
            raise ValueError("secretEnv and secretFile: only one of them")
        for name, value in (("secretEnv", self.secret_env), ("secretFile", self.secret_file)):
            # Else requests would go unsigned, and nobody would know.
            if to_snake(name) in self.model_fields_set and value in (None, Path()):
                raise ValueError(f"{name} is empty: say where the key is, or leave it out")
        if "@" in urlsplit(self.url.get_secret_value()).netloc and "authorization" in map(
            str.lower, (*self.headers, *self.headers_env)
        ):
            raise ValueError("url has credentials, and there is a header Authorization: only one of them")
        return self

    @property
    def where(self) -> str:
        """The receiver as it may be shown: no credentials, no query."""
        parts = urlsplit(self.url.get_secret_value())
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def complete(self, environment: Mapping[str, str]) -> "Route":
        """The same with the headers of ``headersEnv`` among its headers.

        Raises RoutesError, one line for each that is not set, empty, or has what a header cannot have.
        """
        found, faults = dict(self.headers), []
        for name, variable in self.headers_env.items():
            value = environment.get(variable, "").removesuffix("\n").removesuffix("\r")
            if not value.strip():
                faults.append(f"headersEnv.{name}: {variable} is not set or empty")
            elif len(value) > _LONGEST_VALUE or not re.fullmatch(_VALUE, value):
                faults.append(
                    f"headersEnv.{name}: {variable} must be at most {_LONGEST_VALUE} printable ASCII characters"
                )
            found[name] = value
        if faults:
            raise RoutesError(faults)
        return self.model_copy(update={"headers": found, "headers_env": {}})

    def secret(self, environment: Mapping[str, str], folder: Path = Path()) -> bytes | None:
        """The signature's key: see ``key_of``. ``folder`` is where a relative ``secretFile`` begins.

        Raises RoutesError when it is named and cannot be read, is empty, or is no key.
        """
        if self.secret_env:
            value = environment.get(self.secret_env, "").encode("utf-8", "surrogateescape")
            named, absent = f"secretEnv: {self.secret_env}", "is not set or empty"
        elif self.secret_file:
            path = folder / self.secret_file
            named, absent = f"secretFile: {path}", "cannot be read or is empty"
            try:
                value = path.read_bytes()
            except (OSError, ValueError):  # a NUL in its name
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
    """``{routes: [{kinds: mail.*, url: https://…, secretEnv: NAME, timeoutMs: 10000, headers: {…}}]}``; see Route."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    routes: tuple[Route, ...] = Field(min_length=1)


def read_routes(path: Path, *, environment: Mapping[str, str] | None = None) -> list[tuple[Route, bytes | None]]:
    """The routes of a YAML or JSON file, each with its key. Raises RoutesError with one line a fault."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RoutesError([f"cannot be read: {error.strerror}"]) from None
    if len(text) > _MOST_BYTES:
        raise RoutesError([f"must be at most {_MOST_BYTES} bytes"])
    try:
        given, line_of = parse(text, is_json=path.suffix == ".json")
    except TextError as error:
        raise RoutesError([str(error)]) from None
    if not isinstance(given, dict):
        raise RoutesError(["file: must be a mapping with the key `routes`"])
    try:
        routes = Routes.model_validate(given).routes
    except ValidationError as error:
        faults = [fault for fault in error.errors(include_url=False) if not _echo(fault)]
        raise RoutesError([_fault(fault, line_of) for fault in faults]) from None
    return _with_secrets(routes, os.environ if environment is None else environment, path.parent)


def _with_secrets(
    routes: tuple[Route, ...], environment: Mapping[str, str], folder: Path
) -> list[tuple[Route, bytes | None]]:
    found: list[tuple[Route, bytes | None]] = []
    faults: list[str] = []
    for index, route in enumerate(routes):
        key = None
        try:
            key = route.secret(environment, folder)
        except RoutesError as error:
            faults += [f"routes.{index}.{fault}" for fault in error.faults]
        try:
            found.append((route.complete(environment), key))
        except RoutesError as error:
            faults += [f"routes.{index}.{fault}" for fault in error.faults]
    if faults:
        raise RoutesError(faults)
    return found


def _fault(fault: Any, line_of: LineOf) -> str:
    place = [part for part in fault["loc"] if part != "[key]"]
    line = line_of(place)
    # No other field: an address or a header may hold a credential.
    value = f", not {fault['input']!r:.80}" if place[-1:] == ["timeoutMs"] else ""
    where = ".".join(map(str, place)) or "file"
    return f"{where}{f' (line {line})' if line else ''}: {_rule(fault)}{value}"


_TYPES = {
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "missing": "is missing",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_pattern_mismatch": "has a character that is not allowed in a header",
}


def _rule(fault: Any) -> str:
    place = fault["loc"]
    if fault["type"] == "extra_forbidden":
        model = Routes if len(place) == 1 else Route
        known = sorted(field.alias or name for name, field in model.model_fields.items())
        return f"unknown field; known here: {', '.join(known)}"
    if (rule := _TYPES.get(fault["type"])) is not None:
        return rule.format(**fault.get("ctx", {}))
    if fault["type"] == "too_short":
        return f"must have at least 1 {str(place[-1]).removesuffix('s')}"
    return str(fault["msg"]).removeprefix("Value error, ")


def _echo(fault: Any) -> bool:
    """Pydantic also calls a list too short whose members it has just refused."""
    return fault["type"] == "too_short" and bool(fault["input"])
