"""The spec of a TickSchedule: what a user writes. The CRD's schema is generated from these models.

A description here is what ``kubectl explain`` prints, so it is written for users: whole sentences, with units.
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from tickkeeper.api import cron
from tickkeeper.api.bounds import BATCH_SIZE, EVERY_MS, LEASE_MS, NAME_LENGTH, OFFSET_MS, TIME_BUDGET_MS
from tickkeeper.api.errors import Fault, InvalidSpec, faults_of
from tickkeeper.api.models import WHOLE_NUMBER, SpecModel, UniqueItems
from tickkeeper.api.rules import (
    BROKEN_RULE,
    DNS_SUBDOMAIN,
    PLAIN_TEXT,
    Rule,
    at_most_bytes,
    map_at_most_bytes,
    matches,
    without_key,
)
from tickkeeper.api.tick import RESERVED_DATA_KEYS, TickOptions

Name = Annotated[str, Field(min_length=NAME_LENGTH.least, max_length=NAME_LENGTH.most), PLAIN_TEXT]

#: A part of every key in Redis; 255 is a bound of ours, Redis has none.
_KeyPart = Annotated[str, Field(min_length=1, max_length=255), PLAIN_TEXT]
_QueueName = Annotated[_KeyPart, matches("[^:]*", "must not contain ':', which separates the parts of BullMQ's keys")]
_SchedulerId = Annotated[
    _KeyPart,
    at_most_bytes(255),
    matches(
        "[^:]*(?::[^:]*){0,3}",
        "must contain ':' at most 3 times: BullMQ takes an id of five parts for one of its older, repeatable jobs",
    ),
    Rule(
        message="must not end in ':' and digits: BullMQ ends a tick's job id in ':' and its time",
        cel="!self.matches(r':[0-9]+$')",
        holds=lambda text: not _ends_in_digits(text),
    ),
]

#: All of ``data``, keys and values.
DATA_BYTES = 16 * 1024
_Data = Annotated[
    # A value longer than the whole is told so by its own field; both bounds keep the rules within CEL's cost budget.
    dict[str, Annotated[str, Field(max_length=DATA_BYTES)]],
    Field(max_length=256),
    map_at_most_bytes(DATA_BYTES),
    *(without_key(key, "the operator writes it") for key in RESERVED_DATA_KEYS),
]


def _ends_in_digits(text: str) -> bool:
    _head, colon, digits = text.rpartition(":")
    return bool(colon) and digits.isascii() and digits.isdigit()


def _check_schedule_pattern(pattern: str) -> str:
    return _told_as_rule(cron.check_pattern, pattern)


def _check_schedule_zone(time_zone: str) -> str:
    return _told_as_rule(cron.check_time_zone, time_zone)


def _told_as_rule(check: Callable[[str], None], text: str) -> str:
    try:
        check(text)
    except cron.CronError as error:
        raise PydanticCustomError(BROKEN_RULE, "{rule}", {"rule": str(error), "value": text}) from None
    return text


class CronSpec(SpecModel):
    """When to tick, as a cron pattern."""

    # AfterValidators hold what CEL cannot judge: an evaluation, and a database of zones.
    pattern: Annotated[
        str, Field(min_length=1, max_length=512), *cron.PATTERN_RULES, AfterValidator(_check_schedule_pattern)
    ] = Field(
        description="When to tick, as a cron pattern of five fields: minute (0-59), hour (0-23), day of month (1-31), "
        "month (1-12 or JAN-DEC) and day of week (0-7 or SUN-SAT, 0 and 7 are Sunday). Lists, ranges, steps, L, LW, "
        "5L and FRI#2 are understood. Seconds, R, H, ? and words such as @daily are refused. When either day field "
        "starts with *, both must match, otherwise one is enough. A pattern that never fires is accepted by the API "
        "server and reported by the operator as InvalidSpec.",
    )
    time_zone: Annotated[
        str, Field(min_length=1, max_length=64), cron.TIME_ZONE_FORM, AfterValidator(_check_schedule_zone)
    ] = Field(
        default="UTC",
        description="The IANA time zone in which the pattern is evaluated, such as Europe/Stockholm. Where the clock "
        "is put back, a job at a fixed time runs once and a job with * in its minute or hour runs in both passes of "
        "the hour. Where the clock is put forward, a job at a time that does not exist runs right after the gap. A "
        "zone that the operator's time zone database lacks is reported as InvalidSpec.",
    )


class SecretRef(SpecModel):
    """A Secret in the namespace of the TickSchedule."""

    # SSA must not merge one owner's reference with another's.
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: Annotated[str, Field(min_length=1, max_length=253), DNS_SUBDOMAIN] = Field(
        description="The name of a Secret in the namespace of the TickSchedule, a DNS subdomain name."
    )


class RedisSpec(SpecModel):
    """Which Redis holds the schedule."""

    secret_ref: SecretRef = Field(
        description="The Secret that says how to reach Redis. Its key url is required and has the scheme redis, "
        "rediss, redis+sentinel or redis+cluster. Its keys username, password, ca.crt, tls.crt and tls.key are "
        "optional. A change of the Secret is picked up without a restart."
    )


class TickSpec(SpecModel):
    """What a worker does on each tick; it travels in the tick's data."""

    kinds: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100, strict=False), UniqueItems()] | None = Field(
        default=None,
        description="The kinds of outbox rows that a tick delivers, each of 1 to 128 characters. When absent, a tick "
        "delivers every kind that its worker has a handler for.",
    )
    lease_ms: Annotated[int, Field(ge=LEASE_MS.least, le=LEASE_MS.most), WHOLE_NUMBER] | None = Field(
        default=None,
        description="How long, in milliseconds, a worker leases the rows that it has claimed, 1 second to 1 day. The "
        "lease is renewed while the worker lives. When absent, the outbox store's own default applies: 30 seconds, "
        "and 30 minutes for the mnemora store.",
    )
    batch_size: Annotated[int, Field(ge=BATCH_SIZE.least, le=BATCH_SIZE.most), WHOLE_NUMBER] | None = Field(
        default=None,
        description="How many rows a worker claims at a time, 1 to 10000. When absent, the worker's own setting "
        "applies, which is 500 unless it was changed.",
    )
    time_budget_ms: Annotated[int, Field(ge=TIME_BUDGET_MS.least, le=TIME_BUDGET_MS.most), WHOLE_NUMBER] | None = Field(
        default=None,
        description="How long, in milliseconds, one tick may go on claiming rows, 10 milliseconds to 1 day. When "
        "absent, it is the interval, 1 second to 1 minute, or 30 seconds for a cron schedule; with concurrencyPolicy "
        "Forbid a tick then goes on until nothing is left, for as long as its worker has slots to spare.",
    )

    def options(self) -> TickOptions:
        """The same as the tick's data carries it."""
        return TickOptions(**dict(self))


class TickScheduleSpec(SpecModel):
    """The desired schedule; every field may change at any time."""

    # To OpenAPI 100.0 is an integer, but CEL will not read it, not even for has(), so everyMs: 100.0 in raw JSON is
    # refused (kubectl and Helm send 100). Ways around it cost more than the budget of Kubernetes 1.31.
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            message="must have exactly one of everyMs and cron, not both",
            cel="!(has(self.everyMs) && has(self.cron))",
            holds=lambda spec: spec.every_ms is None or spec.cron is None,
        ),
        Rule(
            message="must have exactly one of everyMs and cron, and has neither",
            cel="has(self.everyMs) || has(self.cron)",
            holds=lambda spec: spec.every_ms is not None or spec.cron is not None,
        ),
        Rule(
            message="must be absent when cron is set: it shifts the ticks of everyMs only",
            cel="!(has(self.offsetMs) && has(self.cron))",
            holds=lambda spec: spec.offset_ms is None or spec.cron is None,
            field="offsetMs",
            shown=lambda spec: spec.offset_ms,
        ),
        Rule(
            message="must be at most everyMs",
            cel="!has(self.offsetMs) || !has(self.everyMs) || self.offsetMs <= self.everyMs",
            holds=lambda spec: spec.offset_ms is None or spec.every_ms is None or spec.offset_ms <= spec.every_ms,
            field="offsetMs",
            shown=lambda spec: spec.offset_ms,
        ),
    )

    tenant: Name = Field(
        description="The tenant whose outbox each tick drains, 1 to 128 characters without control, format, "
        "private-use or line-separator characters. It is the tick's tenantId.",
    )
    every_ms: Annotated[int, Field(ge=EVERY_MS.least, le=EVERY_MS.most), WHOLE_NUMBER] | None = Field(
        default=None,
        description="The interval between two ticks in milliseconds, 10 milliseconds to 365 days (31536000000). "
        "Exactly one of everyMs and cron must be set.",
    )
    cron: CronSpec | None = Field(
        default=None,
        description="When to tick, as a cron pattern in a time zone. Exactly one of everyMs and cron must be set.",
    )
    job_name: Name = Field(
        description="The name of the BullMQ job that a tick is, 1 to 128 characters without control, format, "
        "private-use or line-separator characters. Two tenants may share a job name.",
    )
    queue_name: _QueueName = Field(
        default="ticks",
        description="The BullMQ queue that the ticks go to, 1 to 255 characters without a colon and without control, "
        "format, private-use or line-separator characters. Many schedules may share a queue.",
    )
    prefix: _KeyPart = Field(
        default="bull",
        description="The prefix of all keys in Redis, 1 to 255 characters without control, format, private-use or "
        "line-separator characters. It must be the prefix of the workers too. For Redis Cluster it must hold a hash "
        "tag, such as {bull}.",
    )
    scheduler_id: _SchedulerId | None = Field(
        default=None,
        description="The id of the BullMQ job scheduler, at most 255 bytes of UTF-8, with at most 3 colons, not "
        "ending in a colon and digits, and without control, format, private-use or line-separator characters. Set it "
        "to adopt a scheduler that an application registers today. When absent, it is derived from jobName and "
        "tenant, so that no two pairs share an id.",
    )
    offset_ms: Annotated[int, Field(ge=OFFSET_MS.least, le=OFFSET_MS.most), WHOLE_NUMBER] | None = Field(
        default=None,
        description="By how many milliseconds the ticks are shifted from the multiples of everyMs since 1970-01-01 "
        "UTC, 1 to everyMs. It may be set with everyMs only. When absent, it is derived from the uid of the "
        "TickSchedule, so that schedules spread and keep their phase.",
    )
    suspend: bool = Field(
        default=False,
        description="Whether ticking is suspended. While true, the scheduler is removed from Redis and the "
        "TickSchedule stays.",
    )
    redis: RedisSpec | None = Field(
        default=None,
        description="The Redis that holds the schedule. When absent, it is the operator's own Redis.",
    )
    data: _Data = Field(
        default_factory=dict,
        description="Extra data of each tick: at most 256 keys, and at most 16384 bytes of UTF-8 in all, keys and "
        "values together. The keys tenantId and tickkeeper are refused, since the operator writes them. It is no "
        "place for credentials.",
    )
    tick: TickSpec = Field(
        default_factory=TickSpec,
        description="What a worker does on each tick. It travels in the tick's data, so it takes effect with the "
        "next tick.",
    )
    concurrency_policy: Literal["Forbid", "Allow"] = Field(
        default="Forbid",
        description="Whether two ticks of this schedule may run at once. Forbid skips a tick while another one runs, "
        "Allow does not. Only workers of TickKeeper keep it.",
    )
    deletion_policy: Literal["Delete", "Retain"] = Field(
        default="Delete",
        description="What becomes of the scheduler in Redis when the TickSchedule is deleted. Delete removes it "
        "first, Retain leaves it to tick on.",
    )

    @classmethod
    def parse(cls, spec: Any) -> Self:
        """Read the ``spec`` of a resource; absent fields get their defaults, unknown ones are ignored.

        Raises InvalidSpec with every rule that is broken.
        """
        if spec is None:
            raise InvalidSpec([Fault("spec", None, "is required")])
        try:
            return cls.model_validate(spec, by_alias=True, by_name=False)
        except ValidationError as error:
            raise InvalidSpec(faults_of(error, "spec")) from None
