"""values.yaml as documentation: every key with its default and the comment above it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "tickkeeper"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][A-Za-z0-9]*):")


@dataclass(frozen=True, slots=True)
class Value:
    """One documented key; ``path`` has its parents, ``description`` is one paragraph."""

    path: tuple[str, ...]
    default: Any
    description: str


@dataclass(frozen=True, slots=True)
class Group:
    """A key whose comment speaks of all that is below it."""

    path: tuple[str, ...]
    description: str


def load() -> dict[str, Any]:
    """The defaults."""
    defaults: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return defaults


def read() -> tuple[list[Value], list[Group]]:
    """Every key with a ``# --`` comment, and every one with a plain comment, in the file's order."""
    defaults = load()
    values: list[Value] = []
    groups: list[Group] = []
    for path, comment in _commented((CHART / "values.yaml").read_text(encoding="utf-8")):
        if comment.startswith("-- "):
            values.append(Value(path, at(defaults, path), comment.removeprefix("-- ")))
        else:
            groups.append(Group(path, comment))
    return values, groups


def at(defaults: dict[str, Any], path: tuple[str, ...]) -> Any:
    """The default of a key."""
    found: Any = defaults
    for key in path:
        found = found[key]
    return found


def _commented(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
            continue
        found = _KEY.match(line)
        if found:
            indent = len(found["indent"])
            path = [*((depth, key) for depth, key in path if depth < indent), (indent, found["key"])]
            if comment:
                yield tuple(key for _, key in path), " ".join(comment)
        comment = []
