"""A TickSchedule as it is stored: its names, its metadata, and how a body is read."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.api.status import TickScheduleStatus

GROUP = "tickkeeper.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TickSchedule"
SINGULAR = "tickschedule"
PLURAL = "tickschedules"

#: Held while the scheduler must be removed from Redis before the resource may go.
FINALIZER = f"{GROUP}/scheduler"
#: "true": the operator keeps its hands off.
PAUSED_ANNOTATION = f"{GROUP}/paused"
#: "true": the operator may take over a scheduler that another cluster has stamped.
ADOPT_ANNOTATION = f"{GROUP}/adopt"


class ResourceMeta(BaseModel):
    """The part of metav1.ObjectMeta that the operator uses.

    ``namespace``, ``uid``, ``resource_version`` are empty and ``generation`` is 0 in a manifest that was never stored.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_alias=True, validate_by_name=True, frozen=True, extra="ignore"
    )

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    #: Set by the API server once somebody has asked for the deletion and a finalizer still holds it.
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Read the metadata of a resource, whatever its spec looks like: an invalid one needs a status too.

        Raises ValueError (pydantic's ValidationError) for a body that no API server hands out, such as one without
        a name.
        """
        metadata = body.get("metadata") or {}
        present = {name: value for name, value in metadata.items() if value is not None}
        return cls.model_validate(present, by_alias=True, by_name=False)

    @property
    def deleting(self) -> bool:
        """Whether the resource is on its way out."""
        return self.deletion_timestamp is not None

    @property
    def finalized(self) -> bool:
        """Whether our finalizer holds the resource."""
        return FINALIZER in self.finalizers

    @property
    def paused(self) -> bool:
        """Whether the user asks the operator to keep its hands off."""
        return self.annotations.get(PAUSED_ANNOTATION) == "true"

    @property
    def adopts(self) -> bool:
        """Whether the user lets the operator take over another cluster's scheduler."""
        return self.annotations.get(ADOPT_ANNOTATION) == "true"


class TickSchedule(BaseModel):
    """A schedule that must tick: what the user wants (spec) and what the operator found (status)."""

    model_config = ConfigDict(frozen=True)

    metadata: ResourceMeta
    spec: TickScheduleSpec
    status: TickScheduleStatus = Field(default_factory=TickScheduleStatus)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Read a resource as the API server hands it out.

        Raises InvalidSpec where the spec breaks a rule; ``ResourceMeta.parse`` still reads its metadata then, and
        ``TickScheduleStatus.parse(body.get("status"))`` its status.
        """
        return cls(
            metadata=ResourceMeta.parse(body),
            spec=TickScheduleSpec.parse(body.get("spec")),
            status=TickScheduleStatus.parse(body.get("status")),
        )
