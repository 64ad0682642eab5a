"""What a namespace may name in a shared Redis: the operator's allow-lists."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tickkeeper.api.spec import TickScheduleSpec

Patterns = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class NamespaceRule(_Model):
    """What the namespaces that match may name; an absent list allows everything. Patterns are shell-like (``*``)."""

    namespaces: Patterns
    prefixes: Patterns | None = None
    queue_names: Patterns | None = None
    #: explicit spec.schedulerId only: a derived id cannot be another's
    scheduler_ids: Patterns | None = None


class AllowList(_Model):
    """The first rule whose namespaces match decides; with rules, a namespace that none matches may name nothing."""

    #: hosts that a Secret of spec.redis.secretRef may name
    redis_hosts: Patterns | None = None
    rules: tuple[NamespaceRule, ...] = ()

    @property
    def restricts(self) -> bool:
        """Whether anything is restricted at all: then adopting an unstamped scheduler needs the annotation."""
        return bool(self.rules)

    def refusal(self, namespace: str, spec: TickScheduleSpec, hosts: Iterable[tuple[str, int]]) -> str | None:
        """Why ``spec`` may not be used in ``namespace``, None where it may. ``hosts`` are its Redis'."""
        for host, _port in hosts if spec.redis is not None else ():
            if not _matches(host, self.redis_hosts):
                return f"spec.redis.secretRef: the Redis host {host} is not among those that this operator allows"
        if not self.rules:
            return None
        rule = next((rule for rule in self.rules if _matches(namespace, rule.namespaces)), None)
        if rule is None:
            return f"the namespace {namespace} is not among those that this operator allows"
        asked = (
            ("spec.prefix", spec.prefix, rule.prefixes),
            ("spec.queueName", spec.queue_name, rule.queue_names),
            ("spec.schedulerId", spec.scheduler_id, rule.scheduler_ids),
        )
        for field, value, allowed in asked:
            if value is not None and not _matches(value, allowed):
                return f"{field}: {value} is not among those that this operator allows for {namespace}"
        return None


def _matches(value: str, patterns: tuple[str, ...] | None) -> bool:
    return patterns is None or any(fnmatchcase(value, pattern) for pattern in patterns)
