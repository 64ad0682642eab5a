"""How a scheduler's hash differs from the wanted one: by meaning, not by text.

Node and Python write one content as different texts (key order, ``\\u00e5`` or ``å``, ``1.0`` or ``1``, ``1e+17``;
measured), so both sides are parsed before they are compared.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tickkeeper.schedules.desired import Cron, Desired, Every
from tickkeeper.schedules.observed import Record

#: How much of a value an event shows.
_SHOWN = 60


class Difference(NamedTuple):
    """One field that is not as wanted."""

    field: str
    found: Any
    wanted: Any

    def __str__(self) -> str:
        return f"{self.field}: {_short(self.found)} -> {_short(self.wanted)}"


def _short(value: Any) -> str:
    text = "(none)" if value is None else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def differences(desired: Desired, record: Record) -> tuple[Difference, ...]:
    """All fields in which ``record`` is not ``desired``, in the order of their weight."""
    found: list[Difference] = []
    match desired.schedule:
        case Every(every_ms, offset_ms):
            wanted: dict[str, Any] = {"every": every_ms, "offset": offset_ms, "pattern": None, "tz": None}
        case Cron(pattern, time_zone):
            # BullMQ writes an offset of its own beside a pattern; it means nothing there, as long as it is a number.
            offset = record.offset if is_number(record.offset) else None
            wanted = {"every": None, "offset": offset, "pattern": pattern, "tz": time_zone}
    for name, value in wanted.items():
        given = getattr(record, name)
        if not _same_scalar(given, value):
            found.append(Difference(name, given, value))
    if record.name != desired.job_name:
        found.append(Difference("name", record.name, desired.job_name))
    found.extend(Difference(name, value, None) for name, value in sorted(record.bounds.items()))
    found.extend(_mapping("data", record.data, desired.data))
    found.extend(_mapping("opts", record.opts, desired.opts))
    return tuple(found)


def is_number(text: str | None) -> bool:
    """Whether Lua's ``tonumber`` would take it; BullMQ's scripts fail on an offset that it does not."""
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def _same_scalar(given: str | None, wanted: int | str | None) -> bool:
    if given is None or wanted is None or isinstance(wanted, str):
        return given == wanted
    return is_number(given) and float(given) == wanted


def _mapping(name: str, given: Any, wanted: Mapping[str, Any]) -> list[Difference]:
    if not isinstance(given, Mapping):
        return [Difference(name, given, dict(wanted))]
    return [
        Difference(f"{name}.{key}", given.get(key), wanted.get(key))
        for key in sorted(given.keys() | wanted.keys())
        if given.get(key) != wanted.get(key) or (key in given) != (key in wanted)
    ]
