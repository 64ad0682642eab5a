"""Rules that both judges keep: each is written once, as CEL for the API server and as Python for the operator.

OpenAPI's own bounds (lengths, minima, enums) come from pydantic's constraints; a ``Rule`` is what they cannot say.
Both judges count text alike: OpenAPI's ``maxLength`` and pydantic's ``max_length`` count Unicode code points, and
where a rule says bytes it means UTF-8, in CEL ``size(bytes(self))``.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VALIDATIONS = "x-kubernetes-validations"

#: pydantic error types of a broken rule: of one value, and of an object (several at once, each with its field)
BROKEN_RULE = "broken_rule"
BROKEN_RULES = "broken_rules"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; put it into ``Annotated`` after the bounds of its field, or into a model's ``rules``.

    ``message`` follows the field's path and value, so it reads "must …". It holds no value: CEL's cost budget
    forbids to format one. ``cel`` and ``holds`` are true for a value that keeps the rule.
    """

    message: str
    cel: str
    holds: Callable[[Any], bool]
    #: for a rule of an object: the property (camelCase) that it blames, instead of the object itself
    field: str | None = None
    #: what a message of the operator shows as the value; the value itself when absent
    shown: Callable[[Any], Any] | None = None

    def to_crd(self) -> dict[str, str]:
        """The rule as an entry of ``x-kubernetes-validations``."""
        entry = {"rule": self.cel, "message": self.message}
        return entry if self.field is None else {**entry, "fieldPath": f".{self.field}"}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return with_validations(handler(schema), (self,))

    def _check(self, value: Any) -> Any:
        if self.holds(value):
            return value
        told = value if self.shown is None else self.shown(value)
        raise PydanticCustomError(BROKEN_RULE, "{rule}", {"rule": self.message, "value": told})


def with_validations(schema: JsonSchemaValue, rules: Sequence[Rule]) -> JsonSchemaValue:
    """``schema`` with ``rules`` added to its CEL validations."""
    if not rules:
        return schema
    return {**schema, VALIDATIONS: [*schema.get(VALIDATIONS, ()), *(rule.to_crd() for rule in rules)]}


def check_object(value: Any, rules: Sequence[Rule]) -> None:
    """Raise one pydantic error that lists every broken rule of an object."""
    broken = [rule for rule in rules if not rule.holds(value)]
    if broken:
        faults = [(rule.field, None if rule.shown is None else rule.shown(value), rule.message) for rule in broken]
        raise PydanticCustomError(BROKEN_RULES, "{faults}", {"faults": faults})


def _quoted(expression: str) -> str:
    """A regular expression as a raw CEL string."""
    if "'" in expression:
        raise ValueError(f"a raw CEL string cannot hold a quote: {expression}")
    return f"r'{expression}'"


def matches(expression: str, message: str, *, ignore_case: bool = False) -> Rule:
    """The whole text must match ``expression``, which Go's RE2 and Python's ``re`` must read alike.

    ``ignore_case`` folds ASCII letters only: RE2's ``(?i)`` would also take U+017F for an ``s``.
    """
    compiled = re.compile(expression, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    subject = "self.upperAscii()" if ignore_case else "self"
    return Rule(
        message=message,
        cel=f"{subject}.matches({_quoted(f'^(?:{expression})$')})",
        holds=lambda text: compiled.fullmatch(text) is not None,
    )


# Categories by name and not \p{C}, which holds unassigned code points too from Go 1.25 on and did not before: with
# it the answer would depend on the server's build, and a character newer than the server's tables would be refused.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_PLAIN_TEXT = "^[^{}]*$".format("".join(rf"\p{{{category}}}" for category in sorted(_REFUSED_CATEGORIES)))


def is_plain_text(text: str) -> bool:
    """Whether no character is a control, format, private-use, line or paragraph separator one."""
    return not any(unicodedata.category(char) in _REFUSED_CATEGORIES for char in text)


#: Names go into Redis keys, logs and terminals: nothing invisible, nothing that breaks a line.
PLAIN_TEXT = Rule(
    message="must hold no control, format, private-use or line-separator characters, such as NUL, newline or U+200B",
    cel=f"self.matches({_quoted(_PLAIN_TEXT)})",
    holds=is_plain_text,
)

DNS_SUBDOMAIN = matches(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    "must be a DNS subdomain name: lower-case letters, digits, '-' and '.', a letter or digit at both ends of each"
    " part",
)


def at_most_bytes(limit: int) -> Rule:
    """At most ``limit`` bytes of UTF-8."""
    return Rule(
        message=f"must be at most {limit} bytes of UTF-8",
        cel=f"size(bytes(self)) <= {limit}",
        holds=lambda text: _utf8_size(text) <= limit,
    )


def map_at_most_bytes(limit: int) -> Rule:
    """All keys and values of a map together are at most ``limit`` bytes of UTF-8."""
    return Rule(
        message=f"must be at most {limit} bytes in all (keys and values, as UTF-8)",
        cel=f"self.map(key, size(bytes(key)) + size(bytes(self[key]))).sum() <= {limit}",
        holds=lambda data: _map_size(data) <= limit,
        shown=lambda data: f"{_map_size(data)} bytes",
    )


def without_key(key: str, why: str) -> Rule:
    """A map must not have ``key``."""
    return Rule(
        message=f"must not have the key {key}: {why}",
        cel=f"!('{key}' in self)",
        holds=lambda data: key not in data,
        shown=lambda data: {key: data[key]},
    )


def _utf8_size(text: str) -> int:
    return len(text.encode())


def _map_size(data: Mapping[str, str]) -> int:
    return sum(_utf8_size(key) + _utf8_size(value) for key, value in data.items())
