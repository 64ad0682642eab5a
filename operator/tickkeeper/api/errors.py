"""What is wrong with a spec, in words: field, value and rule."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from tickkeeper.api.rules import BROKEN_RULE, BROKEN_RULES

_SHOWN_FAULTS = 10
_SHOWN_CHARACTERS = 80


class Fault(NamedTuple):
    """One broken rule. ``path`` is the field as the user wrote it (``spec.everyMs``, ``spec.tick.kinds[3]``).

    ``value`` None means that there is none worth showing: the field is absent, or a whole object is at fault.
    """

    path: str
    value: Any
    rule: str

    def __str__(self) -> str:
        told = "" if self.value is None else f"invalid value {_shown(self.value)}: "
        return f"{self.path}: {told}{self.rule}"


class InvalidSpec(Exception):
    """A TickSchedule's spec breaks rules that its CRD should have kept (the CRD may be older than the operator).

    The message is one line, at most ten faults, each value cut: fit for a condition or an event.
    """

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        more = len(self.faults) - _SHOWN_FAULTS
        told = [str(fault) for fault in self.faults[:_SHOWN_FAULTS]]
        super().__init__("; ".join(told + ([f"and {more} more"] if more > 0 else [])))


def faults_of(error: ValidationError, root: str) -> tuple[Fault, ...]:
    """The faults that a pydantic error holds, with paths below ``root``, in the order of the fields."""
    return tuple(fault for details in error.errors(include_url=False) for fault in _faults(details, root))


def _faults(details: Mapping[str, Any], root: str) -> Iterable[Fault]:
    path = _path(root, details["loc"])
    context = details.get("ctx", {})
    if details["type"] == BROKEN_RULES:
        for field, value, rule in context["faults"]:
            yield Fault(path if field is None else f"{path}.{field}", value, rule)
    elif details["type"] == BROKEN_RULE:
        yield Fault(path, context["value"], context["rule"])
    elif details["type"] == "missing":
        yield Fault(path, None, "is required")
    else:
        words = _WORDS.get(details["type"])
        yield Fault(path, details["input"], words(context) if words else str(details["msg"]))


_WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "int_type": lambda _: "must be an integer",
    "string_type": lambda _: "must be a string",
    "string_unicode": lambda _: "must be valid Unicode text",
    "bool_type": lambda _: "must be true or false",
    "dict_type": lambda _: "must be a map",
    "tuple_type": lambda _: "must be a list",
    "model_type": lambda _: "must be an object",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
    "string_too_short": lambda context: f"must have at least {_count(context['min_length'], 'character')}",
    "string_too_long": lambda context: f"must have at most {_count(context['max_length'], 'character')}",
    "too_short": lambda context: f"must have at least {_count(context['min_length'], 'item')}",
    "too_long": lambda context: f"must have at most {_count(context['max_length'], 'item')}",
    "literal_error": lambda context: f"must be one of {context['expected']}",
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _path(root: str, location: Iterable[str | int]) -> str:
    path = root
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.replace("_", "").replace("-", "").isalnum() and part.isascii():
            path += f".{part}"
        else:
            path += f"[{_shown(part)}]"
    return path


def _shown(value: Any) -> str:
    """A value on one line, in JSON with every special character escaped, cut to a readable length."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
