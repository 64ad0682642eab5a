"""observe -> plan: a chain of small pure checks, in the order of their severity.

Each takes one scheduler as it must be, as it is, and what was done to it lately, and returns a Plan or None. The first
that speaks decides. A new fault is one function and one line in CHECKS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from tickkeeper.api.conditions import Reason
from tickkeeper.api.cron import interval_ms, next_fire_ms
from tickkeeper.schedules.compare import differences, is_number
from tickkeeper.schedules.desired import Cron, Desired, Every
from tickkeeper.schedules.observed import JobAt, Observed, Record
from tickkeeper.schedules.plan import Plan, State, Step, job_id

#: How much later than its next slot a due time may lie before a writer's clock must have been ahead.
CLOCK_SLACK_MS = 5_000
#: Overdue means later than next + max(MIN, min(interval, MAX)).
OVERDUE_MIN_MS = 30_000
OVERDUE_MAX_MS = 300_000


@dataclass(frozen=True, slots=True)
class Standing:
    """What the operator remembers of a schedule, and knows of itself."""

    #: another writer keeps changing ours back: leave it until the back-off is over
    corrections_held: bool = False
    #: somebody keeps removing it: leave it until the back-off is over
    heals_held: bool = False
    #: resets (remove, then upsert) are used up for now
    resets_used_up: bool = False
    #: a newer generation than ours was in Redis for so long that ours must be the newest there is
    newest_is_ours: bool = False
    #: our own clock is off Redis' by more than a second: no verdict on others' clocks
    own_clock_off: bool = False


_WAITING = (JobAt.DELAYED, JobAt.PRIORITIZED, JobAt.WAIT, JobAt.PAUSED)

Check = Callable[[Desired, Observed, Standing], Plan | None]


def plan(desired: Desired, observed: Observed, standing: Standing | None = None) -> Plan:
    """What to do so that ``desired`` holds, given ``observed``. Pure and total; ``observed.now`` is Redis' TIME."""
    standing = standing or Standing()
    for check in CHECKS:
        found = check(desired, observed, standing)
        if found is not None:
            return _held(found, standing)
    return Plan(State.HEALTHY)


def _held(found: Plan, standing: Standing) -> Plan:
    held = {
        State.DIFFERS: standing.corrections_held,
        State.CLOCK_AHEAD: standing.resets_used_up,
        State.OFF_PHASE: standing.resets_used_up,
    }.get(found.state, standing.heals_held and found.acts and found.state is not State.OUTDATED)
    if not held:
        return found
    message = f"undone again and again, tried less often now: {found.message}"
    return Plan(State.HELD_BACK, message=message, reason=Reason.FIGHTING)


def plan_removal(desired: Desired, observed: Observed) -> Plan:
    """What to do so that nothing of ``desired`` is left that would tick again.

    History, events, the queue's meta and id counter stay: they are the queue's. A scheduler that somebody else owns
    is left alone.
    """
    if (stopped := _wrong_type(desired, observed, Standing())) is not None:
        return stopped
    record = observed.record
    if record is not None and record.owner is not None and not record.owner.same_resource(desired.owner):
        return Plan(State.FOREIGN_OWNER, message="owned by another resource by now; left alone")
    if record is not None and record.owner is None and not desired.adopts_unstamped:
        return Plan(State.FOREIGN_OWNER, message="never stamped by this operator; left alone")
    jobs = []
    if observed.score is not None:
        jobs.append(job_id(desired.place.scheduler_id, observed.score))
    if observed.leftover_job is not None and observed.leftover_job not in jobs:
        jobs.append(observed.leftover_job)
    if observed.score is None and record is not None:
        # removeJobScheduler leaves a hash whose entry is gone (measured): give it an entry first.
        return Plan(
            State.LEFTOVER,
            (*(Step.REMOVE_JOB for _ in jobs), Step.UPSERT, Step.REMOVE),
            tuple(jobs),
            "its hash was left without an entry",
        )
    if observed.score is not None:
        # A tick in progress keeps its job: its lock says so, and it makes no next one.
        pending = observed.job not in (JobAt.ACTIVE, JobAt.FINISHED)
        kept = tuple(jobs if pending else jobs[1:])
        return Plan(State.LEFTOVER, (Step.REMOVE, *(Step.REMOVE_JOB for _ in kept)), kept)
    if jobs:
        return Plan(State.LEFTOVER, tuple(Step.REMOVE_JOB for _ in jobs), tuple(jobs))
    return Plan(State.ABSENT)


def next_slot(desired: Desired, now: int) -> int:
    """The due time that a new registration at ``now`` would get (epoch ms)."""
    match desired.schedule:
        case Every() as every:
            return every.next_slot(now)
        case Cron(pattern, time_zone):
            return next_fire_ms(pattern, time_zone, now)


def interval(desired: Desired, now: int) -> int:
    """Milliseconds between two ticks; for cron, between the next two."""
    match desired.schedule:
        case Every(every_ms):
            return every_ms
        case Cron(pattern, time_zone):
            return interval_ms(pattern, time_zone, now)


def latest_sane_score(desired: Desired, now: int, *, slot_taken: bool = False) -> int:
    """The latest due time that an honest clock can have written; one more slot where the next one is taken."""
    match desired.schedule:
        case Every(every_ms):
            return now + every_ms * (2 if slot_taken else 1) + CLOCK_SLACK_MS
        case Cron():
            first = next_slot(desired, now + CLOCK_SLACK_MS)
            return next_slot(desired, first) if slot_taken else first


def overdue_after_ms(desired: Desired, now: int) -> int:
    """How late a tick may be before it is called overdue."""
    return max(OVERDUE_MIN_MS, min(interval(desired, now), OVERDUE_MAX_MS))


# --- the checks ---


def _wrong_type(_: Desired, observed: Observed, __: Standing) -> Plan | None:
    if observed.wrong_type is None:
        return None
    message = f"the key {observed.wrong_type} holds another type than BullMQ's; nothing was written"
    return Plan(State.WRONG_TYPE, message=message, reason=Reason.WRONG_TYPE)


def _foreign_owner(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    record = observed.record
    if record is None:
        return None
    owner = record.owner
    if owner is None:
        if desired.adopts_unstamped:
            return None
        message = (
            f"a scheduler {desired.place.scheduler_id} that TickKeeper never registered is in the way; "
            "name it in spec.schedulerId to adopt it"
        )
        return Plan(State.FOREIGN_OWNER, message=message, reason=Reason.FOREIGN_OWNER)
    if owner.cluster != desired.owner.cluster and not desired.adopts_foreign:
        message = (
            f"{owner.key} of cluster {owner.cluster} owns it; "
            'annotate with tickkeeper.dev/adopt: "true" to take it over'
        )
        return Plan(State.FOREIGN_OWNER, message=message, reason=Reason.FOREIGN_OWNER)
    return None


def _newer_generation(desired: Desired, observed: Observed, standing: Standing) -> Plan | None:
    # Our view is older than what another operator has already registered: the next event brings it. Where none comes,
    # the API server's data was set back (restored from a backup), or somebody made the stamp up.
    if standing.newest_is_ours:
        return None
    owner = observed.record.owner if observed.record else None
    if owner is None or not owner.same_resource(desired.owner) or owner.uid != desired.owner.uid:
        return None
    if owner.generation <= desired.owner.generation or observed.score is None:
        return None
    message = f"generation {owner.generation} is registered already, {desired.owner.generation} is known here"
    return Plan(State.NEWER_GENERATION, message=message, reason=Reason.REGISTERING)


def _missing(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    if observed.score is not None:
        return None
    if observed.leftover_job is not None and not _is_own_due_tick(desired, observed):
        # Left in place it would push the new registration to the slot after, or tick by an edition that is over.
        jobs = (observed.leftover_job,)
        return Plan(State.MISSING, (Step.REMOVE_JOB, Step.UPSERT), jobs, "the scheduler's entry was gone")
    return Plan(State.MISSING, (Step.UPSERT,), message="the scheduler was gone")


def _hash_missing(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    if observed.record is not None:
        return None
    return _registered_anew(desired, observed, State.HASH_MISSING, "the scheduler's hash was gone")


def _differs(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    record, _score = _present(observed)
    found = differences(desired, record)
    if not found:
        return None
    state = State.OUTDATED if _is_older_edition(desired, record) else State.DIFFERS
    # The due time stays where the interval does: one that is off must be given up, or the next look finds it.
    keeps_due_time = not any(difference.field in ("every", "pattern", "tz") for difference in found)
    off = keeps_due_time and (_is_off_phase(desired, observed) or _is_ahead(desired, observed))
    # An upsert for cron reads the old offset and fails on one that is no number, with the hash already deleted.
    off = off or (record.offset is not None and not is_number(record.offset))
    return _registered_anew(desired, observed, state, "; ".join(map(str, found)), give_up_due_time=off)


def _clock_ahead(desired: Desired, observed: Observed, standing: Standing) -> Plan | None:
    if not _is_ahead(desired, observed):
        return None
    if standing.own_clock_off:
        # BullMQ takes the time from its caller: registering it again would write the same.
        message = "its next tick is later than it can be, and the operator's clock and Redis' differ"
        return Plan(State.HELD_BACK, message=message, reason=Reason.CLOCK_SKEW)
    message = f"its next tick was due at {_at(_present(observed)[1])}, later than an honest clock can have set it"
    return _registered_anew(desired, observed, State.CLOCK_AHEAD, message, give_up_due_time=True)


def _off_phase(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    if not _is_off_phase(desired, observed):
        return None
    message = "its next tick was not on its slots"
    return _registered_anew(desired, observed, State.OFF_PHASE, message, give_up_due_time=True)


def _job_hash_missing(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    if observed.job not in _WAITING or observed.job_intact:
        return None
    message = "the next tick's job had lost its data"
    return _registered_anew(desired, observed, State.JOB_HASH_MISSING, message)


def _chain_broken(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    if observed.job not in (JobAt.NOWHERE, JobAt.FINISHED):
        return None
    message = (
        "the next tick's job was in no list" if observed.job is JobAt.NOWHERE else "the last tick made no next one"
    )
    if _present(observed)[1] <= observed.now:
        message += "; that slot is skipped"
    return _registered_anew(desired, observed, State.CHAIN_BROKEN, message)


def _active_lost(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    if observed.job is not JobAt.ACTIVE_UNLOCKED:
        return None
    message = "the worker of the due tick died before it made the next one"
    return _registered_anew(desired, observed, State.ACTIVE_LOST, message)


def _overdue(desired: Desired, observed: Observed, _: Standing) -> Plan | None:
    score = _present(observed)[1]
    late = observed.now - score
    if late <= overdue_after_ms(desired, observed.now):
        return None
    reason, message = _why_overdue(observed)
    return Plan(State.OVERDUE, message=f"due since {_at(score)}: {message}", reason=reason)


def _why_overdue(observed: Observed) -> tuple[Reason, str]:
    queue = observed.queue
    if queue.paused:
        return Reason.QUEUE_PAUSED, "the queue is paused"
    if queue.workers == 0:
        return Reason.NO_WORKERS, "no worker is connected to the queue"
    if queue.rate_limited:
        return Reason.RATE_LIMITED, "the queue's rate limit is reached"
    if observed.job is JobAt.ACTIVE:
        return Reason.BUSY, "a worker holds the tick and has not made the next one"
    if queue.maxed:
        return Reason.BUSY, "the queue's concurrency is used up"
    if observed.job is JobAt.BACKLOG:
        return Reason.BACKLOG, "it waits behind more jobs than can be read"
    return Reason.OVERDUE, f"no worker took it ({observed.job.value})"


#: In the order of their severity: who may write at all, is it there, is it ours and right, will it tick, does it tick.
CHECKS: tuple[Check, ...] = (
    _wrong_type,  # a key of another type in the way: touch nothing
    _foreign_owner,  # somebody else's: touch nothing
    _newer_generation,  # our own view is stale: touch nothing
    _missing,  # no entry: it is gone
    _hash_missing,  # an entry without its hash: it would tick without data
    _differs,  # somebody else wrote it, or the resource was edited
    _clock_ahead,  # due too far in the future: a plain upsert would keep that
    _off_phase,  # due between its slots
    _job_hash_missing,  # one ghost tick without a tenant, then silence
    _chain_broken,  # it looks registered and never ticks again
    _active_lost,  # its worker died between taking the tick and making the next
    _overdue,  # registered and right, but nobody ticks it: only reported
)


def _present(observed: Observed) -> tuple[Record, int]:
    assert observed.record is not None  # the checks before have answered for the other cases
    assert observed.score is not None
    return observed.record, observed.score


def _at(time: int) -> str:
    """A time (epoch ms) in words. Never how long ago: a message that changes with each look is written with each."""
    try:
        return datetime.fromtimestamp(time // 1000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{time} ms"  # beyond the calendar


def _is_off_phase(desired: Desired, observed: Observed) -> bool:
    return isinstance(desired.schedule, Every) and not desired.schedule.in_phase(_present(observed)[1])


def _is_ahead(desired: Desired, observed: Observed) -> bool:
    taken = observed.leftover_job is not None
    return _present(observed)[1] > latest_sane_score(desired, observed.now, slot_taken=taken)


def _is_own_due_tick(desired: Desired, observed: Observed) -> bool:
    """Whether the leftover job is a due tick that only waits for a worker."""
    slot = int((observed.leftover_job or "").rpartition(":")[2] or 0)
    own = isinstance(desired.schedule, Every) and desired.schedule.in_phase(slot)
    return own and slot <= observed.now


def _is_older_edition(desired: Desired, record: Record) -> bool:
    # Another uid is no older edition: two clusters that were built from one source with one cluster id would take each
    # other's for theirs for ever.
    owner = record.owner
    return (
        owner is not None
        and owner.same_resource(desired.owner)
        and owner.uid == desired.owner.uid
        and owner.generation < desired.owner.generation
    )


def _registered_anew(
    desired: Desired, observed: Observed, state: State, message: str, *, give_up_due_time: bool = False
) -> Plan:
    """An entry is there and must be written again.

    A plain upsert replaces a job that waits whole, and keeps its slot. Beside any other job it would take the slot
    after (measured), so there the scheduler is removed first, with what would take the new slot; the offset gives the
    same slot again. The scheduler goes before the job: Job.remove refuses the one that the entry points to
    (removeJob-2.lua answers -8).
    """
    taken = [] if observed.leftover_job is None else [observed.leftover_job]
    if observed.job in _WAITING and observed.job_intact and not give_up_due_time:
        return Plan(state, (*(Step.REMOVE_JOB for _ in taken), Step.UPSERT), tuple(taken), message)
    current = job_id(desired.place.scheduler_id, observed.score or 0)
    ghost = observed.job is JobAt.NOWHERE or (observed.job in _WAITING and not observed.job_intact)
    early = observed.job in (JobAt.FINISHED, JobAt.ACTIVE_UNLOCKED) and (observed.score or 0) > observed.now
    jobs = tuple(dict.fromkeys(([current] if ghost or early else []) + taken))
    return Plan(state, (Step.REMOVE, *(Step.REMOVE_JOB for _ in jobs), Step.UPSERT), jobs, message)
