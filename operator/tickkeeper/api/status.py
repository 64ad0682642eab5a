"""The status of a TickSchedule: what the operator found. Nothing in it changes with a tick.

Reading is lenient, since what a status says can be observed again: a field of another form counts as absent, so
neither a newer operator's status nor one made by hand stops this one.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from tickkeeper.api.conditions import ConditionType, Status


def _to_seconds(time: datetime) -> datetime:
    """metav1.Time: UTC, whole seconds. A time without a zone is taken for UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return aware.astimezone(UTC).replace(microsecond=0)


Time = Annotated[datetime, AfterValidator(_to_seconds)]


class _StatusModel(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_alias=True, validate_by_name=True, frozen=True, extra="ignore"
    )


class Condition(_StatusModel):
    """One aspect of the schedule's state, in the form of metav1.Condition."""

    type: str = Field(
        min_length=1,
        max_length=316,
        description="The aspect that the condition speaks of: Ready, Registered, Ticking, RedisSafe, Suspended or "
        "ReferencesResolved.",
    )
    status: Status = Field(description="Whether the aspect holds: True, False or Unknown.")
    observed_generation: int | None = Field(
        default=None,
        ge=0,
        description="The metadata.generation of the TickSchedule that the condition was found for.",
    )
    last_transition_time: Time = Field(
        description="When the condition's status last changed from one value to another."
    )
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why the condition has its status, as one CamelCase word for programs.",
    )
    message: str = Field(
        max_length=32768, description="Why the condition has its status, in words for people; it may be empty."
    )


class Registered(_StatusModel):
    """Where the scheduler was registered."""

    redis: str = Field(description="The Redis, as an address with its database number and without credentials.")
    prefix: str = Field(description="The prefix of the keys in Redis.")
    queue_name: str = Field(description="The BullMQ queue.")
    scheduler_id: str = Field(description="The id of the BullMQ job scheduler, derived or given.")
    time: Time = Field(description="When the scheduler was registered there for the first time.")


class LastHeal(_StatusModel):
    """The last time that the operator found the schedule broken and restored it."""

    time: Time = Field(description="When the schedule was restored.")
    reason: str = Field(
        min_length=1, max_length=128, description="What was broken, as one CamelCase word, such as Missing."
    )


_MAP_OF_CONDITIONS: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class TickScheduleStatus(_StatusModel):
    """The observed state of a TickSchedule."""

    observed_generation: int | None = Field(
        default=None,
        ge=0,
        description="The metadata.generation of the TickSchedule that this status was found for.",
    )
    registered: Registered | None = Field(
        default=None,
        description="Where the scheduler was registered, so that a change of the place removes it there first. "
        "Absent while nothing is registered.",
    )
    heals: int = Field(
        default=0,
        ge=0,
        description="How many times the operator found the schedule broken and restored it, since the TickSchedule "
        "was created.",
    )
    last_heal: LastHeal | None = Field(
        default=None,
        description="The last time that the operator found the schedule broken and restored it.",
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description="What the operator found, one condition for each aspect. Ready sums up the others.",
        json_schema_extra=_MAP_OF_CONDITIONS,
    )

    @classmethod
    def parse(cls, status: Any) -> Self:
        """Read the ``status`` of a resource. It never fails: fields and conditions of another form are left out."""
        if not isinstance(status, Mapping):
            return cls()
        try:
            return cls._of(status)
        except ValidationError as error:
            odd = {details["loc"][:2] for details in error.errors()}
        kept = {name: value for name, value in status.items() if not _is_odd(name, odd)}
        conditions = kept.get("conditions")
        if isinstance(conditions, list):
            kept["conditions"] = [
                condition for index, condition in enumerate(conditions) if ("conditions", index) not in odd
            ]
        return cls._of(kept)

    @classmethod
    def _of(cls, status: Mapping[str, Any]) -> Self:
        return cls.model_validate(dict(status), by_alias=True, by_name=False)

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of one type, if it is there."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def to_wire(self) -> dict[str, Any]:
        """As JSON for the API server: camelCase, times in RFC 3339, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _is_odd(name: str, odd: set[tuple[int | str, ...]]) -> bool:
    """Whether a field as a whole is of another form; of the conditions, each one is judged by itself."""
    if name == "conditions":
        return (name,) in odd
    return any(location[0] == name for location in odd)
