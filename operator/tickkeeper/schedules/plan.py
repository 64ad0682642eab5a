"""A plan: what to do to one scheduler, as data that a test can compare and a log can print."""

from dataclasses import dataclass
from enum import StrEnum

from tickkeeper.api.conditions import Reason


class Step(StrEnum):
    """One official BullMQ call; a plan's steps run in their order."""

    #: Queue.removeJobScheduler
    REMOVE = "remove"
    #: Job.remove of a job that must not stay: a ghost, a leftover at the next slot, a tick that already waits
    REMOVE_JOB = "remove-job"
    #: Queue.upsertJobScheduler with every template option
    UPSERT = "upsert"


class State(StrEnum):
    """What is the matter with one scheduler; also the ``cause`` label of metrics and events."""

    HEALTHY = "Healthy"
    MISSING = "Missing"
    HASH_MISSING = "HashMissing"
    JOB_HASH_MISSING = "JobHashMissing"
    DIFFERS = "Differs"
    #: the resource itself was edited: not a fault
    OUTDATED = "Outdated"
    CHAIN_BROKEN = "ChainBroken"
    CLOCK_AHEAD = "ClockAhead"
    OFF_PHASE = "OffPhase"
    ACTIVE_LOST = "ActiveLost"
    OVERDUE = "Overdue"
    WRONG_TYPE = "WrongType"
    FOREIGN_OWNER = "ForeignOwner"
    NEWER_GENERATION = "NewerGeneration"
    HELD_BACK = "HeldBack"
    #: it should not be there, and is
    LEFTOVER = "Leftover"
    ABSENT = "Absent"
    #: what is there could not be read
    UNCLEAR = "Unclear"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found, and the steps that mend it; no steps means: touch nothing."""

    state: State
    steps: tuple[Step, ...] = ()
    #: job ids for REMOVE_JOB, in order
    jobs: tuple[str, ...] = ()
    #: one sentence for events and conditions
    message: str = ""
    #: for a state that only reports: the condition's reason
    reason: Reason | None = None

    @property
    def acts(self) -> bool:
        """Whether it writes to Redis."""
        return bool(self.steps)


def job_id(scheduler_id: str, slot: int) -> str:
    """BullMQ's id of a scheduler's job at one due time (epoch ms)."""
    return f"repeat:{scheduler_id}:{slot}"
