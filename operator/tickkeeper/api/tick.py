"""What a tick carries: the job data that the operator writes and a worker reads.

The shape is public: Node workers read it too. ``{"tenantId": "acme", <spec.data …>, "tickkeeper": {…}}``.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tickkeeper.api.bounds import BATCH_SIZE, LEASE_MS, NAME_LENGTH, TIME_BUDGET_MS

#: Keys of the job data that are ours; ``spec.data`` may not use them.
RESERVED_DATA_KEYS = ("tenantId", "tickkeeper")


class _Wire(BaseModel):
    # Fields that this version does not know are kept apart, not refused: a newer operator may have written them.
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class TickOptions(_Wire):
    """What the worker's tick does (``spec.tick``); an absent field means the worker's own default."""

    kinds: tuple[Annotated[str, Field(min_length=NAME_LENGTH.least, max_length=NAME_LENGTH.most)], ...] | None = None
    lease_ms: Annotated[int, Field(ge=LEASE_MS.least, le=LEASE_MS.most)] | None = None
    batch_size: Annotated[int, Field(ge=BATCH_SIZE.least, le=BATCH_SIZE.most)] | None = None
    time_budget_ms: Annotated[int, Field(ge=TIME_BUDGET_MS.least, le=TIME_BUDGET_MS.most)] | None = None


class Stamp(_Wire):
    """Ownership, written where the schedule is: identity is cluster + namespace + name.

    It travels with every tick, through Node and Python workers alike.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    generation: int
    deletion_policy: Literal["Delete", "Retain"] = "Delete"
    concurrency_policy: Literal["Forbid", "Allow"] = "Forbid"
    #: Interval in milliseconds; absent for cron. The worker derives its time budget from it.
    every_ms: int | None = None
    tick: TickOptions = TickOptions()


class TickData(_Wire):
    """A tick's job data, parsed. ``data`` is the rest: what ``spec.data`` added."""

    tenant_id: str = Field(min_length=NAME_LENGTH.least, max_length=NAME_LENGTH.most)
    tickkeeper: Stamp | None = None
    data: dict[str, Any] = Field(default_factory=dict, exclude=True)

    @classmethod
    def parse(cls, job_data: Any, *, default_tenant: str | None = None) -> "TickData":
        """Read a job's data; ``default_tenant`` serves ticks of an application that registers without data.

        Raises ValueError (pydantic's ValidationError) when there is no tenant or a field has the wrong form.
        """
        given = dict(job_data) if isinstance(job_data, dict) else {}
        if not given.get("tenantId") and default_tenant is not None:
            given["tenantId"] = default_tenant
        extra = {key: value for key, value in given.items() if key not in RESERVED_DATA_KEYS}
        return cls.model_validate({**given, "data": extra})
