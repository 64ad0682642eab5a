"""What must be in Redis for one resource, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


class ResourceKey(NamedTuple):
    """A TickSchedule's namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Place(NamedTuple):
    """Where a scheduler lies within one Redis."""

    prefix: str
    queue: str
    scheduler_id: str

    def __str__(self) -> str:
        return f"{self.prefix}:{self.queue}:repeat:{self.scheduler_id}"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a scheduler belongs to: identity is cluster + namespace + name; uid and generation say which edition."""

    cluster: str
    key: ResourceKey
    uid: str
    generation: int

    def same_resource(self, other: "Owner") -> bool:
        """True for another edition of the same resource too: recreated, or restored from a backup."""
        return (self.cluster, self.key) == (other.cluster, other.key)


@dataclass(frozen=True, slots=True)
class Every:
    """Fires each ``every_ms`` at ``offset_ms`` past a multiple of it since the epoch."""

    every_ms: int
    offset_ms: int

    def next_slot(self, now: int) -> int:
        """The first slot after ``now`` (epoch ms), by BullMQ's own arithmetic (getJobSchedulerEveryNextMillis)."""
        slot = now // self.every_ms * self.every_ms + self.offset_ms
        return slot if slot > now else slot + self.every_ms

    def in_phase(self, score: int) -> bool:
        """Whether a due time lies on this grid."""
        return score % self.every_ms == self.offset_ms % self.every_ms


@dataclass(frozen=True, slots=True)
class Cron:
    """Fires as cronsim evaluates ``pattern`` (5 fields) in the IANA ``time_zone``."""

    pattern: str
    time_zone: str


@dataclass(frozen=True, slots=True)
class Desired:
    """One scheduler as it must be. ``data`` and ``opts`` are BullMQ's template, complete: an upsert without template
    options erases the stored ones (measured)."""

    owner: Owner
    place: Place
    schedule: Every | Cron
    job_name: str
    data: Mapping[str, Any] = field(hash=False)
    opts: Mapping[str, Any] = field(hash=False)
    #: may take over a scheduler without a stamp: the resource names its id, or status says that we registered it
    adopts_unstamped: bool = False
    #: may take over another cluster's (annotation tickkeeper.dev/adopt)
    adopts_foreign: bool = False
    deletion_policy: Literal["Delete", "Retain"] = "Delete"
