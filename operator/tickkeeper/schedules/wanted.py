"""From a resource to the scheduler that must be in Redis."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tickkeeper.api.resource import ResourceMeta
from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.api.tick import Stamp
from tickkeeper.schedules.desired import Cron, Desired, Every, Owner, Place, ResourceKey
from tickkeeper.schedules.identity import derive_offset_ms, derive_scheduler_id


class Retention(BaseModel):
    """How many finished ticks a queue keeps, and for how many seconds; the smaller bound wins.

    A setting of the operator: BullMQ trims per queue, so the smallest of any schedule would win for all (measured).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    completed_count: int = Field(default=100, ge=0, le=1_000_000)
    completed_age_seconds: int = Field(default=86_400, ge=1, le=31_536_000)
    failed_count: int = Field(default=1_000, ge=0, le=1_000_000)
    failed_age_seconds: int = Field(default=604_800, ge=1, le=31_536_000)

    def opts(self) -> dict[str, Any]:
        """BullMQ's template options. One attempt always: attempts would overlap later ticks, and rows are what is
        retried."""
        return {
            "attempts": 1,
            "removeOnComplete": {"count": self.completed_count, "age": self.completed_age_seconds},
            "removeOnFail": {"count": self.failed_count, "age": self.failed_age_seconds},
        }


def place(spec: TickScheduleSpec) -> Place:
    """Where the scheduler of a spec lies within its Redis."""
    scheduler_id = spec.scheduler_id or derive_scheduler_id(spec.job_name, spec.tenant)
    return Place(spec.prefix, spec.queue_name, scheduler_id)


def wanted(
    meta: ResourceMeta,
    spec: TickScheduleSpec,
    *,
    cluster: str,
    opts: Mapping[str, Any],
    adopts_unstamped: bool,
) -> Desired:
    """The scheduler that a resource asks for, with ``opts`` as its template's options.

    ``adopts_unstamped``: whether it may take over a scheduler that bears no stamp.
    """
    owner = Owner(cluster, ResourceKey(meta.namespace, meta.name), meta.uid, meta.generation)
    return Desired(
        owner=owner,
        place=place(spec),
        schedule=_schedule(spec, meta.uid),
        job_name=spec.job_name,
        data=_data(spec, owner),
        opts=opts,
        adopts_unstamped=adopts_unstamped,
        adopts_foreign=meta.adopts,
        deletion_policy=spec.deletion_policy,
    )


def _schedule(spec: TickScheduleSpec, uid: str) -> Every | Cron:
    if spec.cron is not None:
        return Cron(spec.cron.pattern, spec.cron.time_zone)
    assert spec.every_ms is not None  # the models hold: exactly one of both
    return Every(spec.every_ms, spec.offset_ms or derive_offset_ms(uid, spec.every_ms))


def _data(spec: TickScheduleSpec, owner: Owner) -> Mapping[str, Any]:
    stamp = Stamp(
        cluster=owner.cluster,
        namespace=owner.key.namespace,
        name=owner.key.name,
        uid=owner.uid,
        generation=owner.generation,
        deletion_policy=spec.deletion_policy,
        concurrency_policy=spec.concurrency_policy,
        every_ms=spec.every_ms,
        tick=spec.tick.options(),
    )
    return {
        **spec.data,
        "tenantId": spec.tenant,
        "tickkeeper": stamp.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
