"""What can be seen of one scheduler in Redis, in one atomic look."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tickkeeper.schedules.desired import Owner


class JobAt(Enum):
    """Where the scheduler's next job is."""

    DELAYED = "delayed"
    PRIORITIZED = "prioritized"
    WAIT = "wait"
    PAUSED = "paused"
    ACTIVE = "active"
    #: in ``active``, but its lock is gone: its worker died, or lost its lock
    ACTIVE_UNLOCKED = "active-unlocked"
    #: already completed or failed: the worker did not make the next one
    FINISHED = "finished"
    #: not among the first jobs of a list too long to read
    BACKLOG = "backlog"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class Record:
    """The scheduler's hash, decoded. ``data`` and ``opts`` are None where the text is not JSON."""

    name: str | None
    every: str | None = None
    offset: str | None = None
    pattern: str | None = None
    tz: str | None = None
    #: fields that we never write: limit, startDate, endDate
    bounds: Mapping[str, str] = field(default_factory=dict, hash=False)
    data: Any = field(default=None, hash=False)
    opts: Any = field(default=None, hash=False)
    iterations: int = 0
    #: the ownership stamp in ``data``, where there is one
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What the queue as a whole says about why a job waits."""

    paused: bool = False
    #: the queue's global concurrency is used up
    maxed: bool = False
    rate_limited: bool = False
    #: workers connected, by CLIENT LIST; None when nobody looked
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One scheduler at Redis' time ``now`` (epoch ms)."""

    now: int
    #: the next due time in the ``repeat`` zset, None when there is no entry
    score: int | None = None
    record: Record | None = None
    job: JobAt = JobAt.NOWHERE
    #: the next job's hash exists and says which scheduler made it
    job_intact: bool = False
    #: a job of this scheduler lies at the slot that a new registration would take
    leftover_job: str | None = None
    #: a key that holds another type than BullMQ's
    wrong_type: str | None = None
    queue: QueueFacts = QueueFacts()
