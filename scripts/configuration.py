"""Prints docs/configuration.md: every variable of operator and worker, from their settings."""

import sys
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tickkeeper.controller.settings import OperatorSettings
from tickkeeper.worker.settings import WorkerSettings

_HEAD = """# Configuration
Made by `make configuration` from the settings; a test holds it equal. A program that cannot use its configuration ends
with exit code 2 and one line for each fault, before anything starts.
"""


def render() -> str:
    """The whole document."""
    parts = [_HEAD]
    for title, settings in (("Operator", OperatorSettings), ("Worker", WorkerSettings)):
        parts.append(f"## {title}\n| variable | default | what |\n|---|---|---|")
        parts += [_row(settings, name) for name in settings.model_fields]
        parts.append("")
    return "\n".join(parts)


def _row(settings: type[BaseModel], name: str) -> str:
    field = settings.model_fields[name]
    prefix = str(settings.model_config.get("env_prefix", ""))
    bounds = ", ".join(filter(None, map(_bound, field.metadata)))
    what = "; ".join(filter(None, (field.description, bounds, _choices(field.annotation))))
    default = "required" if field.default is PydanticUndefined else _default(field.default)
    return f"| `{(prefix + name).upper()}` | {default} | {what} |"


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "" if value in (None, ()) else f"`{value}`"


def _bound(rule: Any) -> str | None:
    for attribute, word in (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than")):
        if (limit := getattr(rule, attribute, None)) is not None:
            return f"{word} {limit}"
    return None


def _choices(annotation: Any) -> str | None:
    options = get_args(annotation)
    return " or ".join(options) if options and all(isinstance(option, str) for option in options) else None


if __name__ == "__main__":
    sys.stdout.write(render())
