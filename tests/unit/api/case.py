"""The form of a case: a spec that both judges accept, or refuse for the same field."""

from dataclasses import dataclass
from typing import Any

ABSENT = object()


@dataclass(frozen=True)
class Good:
    """A spec that both accept."""

    name: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class Bad:
    """A spec that both refuse: ``field`` is the path that both blame, ``rule`` and ``server`` what each says of it."""

    name: str
    spec: dict[str, Any]
    field: str
    rule: str
    server: str


def spec(**changes: Any) -> dict[str, Any]:
    """A small valid spec with fields changed; ABSENT removes one."""
    fields = {"tenant": "acme", "jobName": "drain", "everyMs": 5000} | changes
    return {name: value for name, value in fields.items() if value is not ABSENT}


def good(name: str, **changes: Any) -> Good:
    return Good(name, spec(**changes))


def bad(name: str, field: str, rule: str, server: str | None = None, **changes: Any) -> Bad:
    return Bad(name, spec(**changes), f"spec.{field}" if field else "spec", rule, rule if server is None else server)


def cron(pattern: Any, **more: Any) -> dict[str, Any]:
    return {"everyMs": ABSENT, "cron": {"pattern": pattern, **more}}
