"""From what was found to the status: conditions in metav1 form, written only when something changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from tickkeeper.api.conditions import ConditionType, Reason, Status
from tickkeeper.api.status import Condition, LastHeal, Registered, TickScheduleStatus
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.ticking import Verdict

#: Kubernetes allows 32 KiB; a condition is read in a terminal.
_LONGEST_MESSAGE = 1024

REGISTERED = Verdict(Status.TRUE, Reason.REGISTERED)
RESOLVED = Verdict(Status.TRUE, Reason.RESOLVED)
NOT_SUSPENDED = Verdict(Status.FALSE, Reason.NOT_SUSPENDED)
SUSPENDED = Verdict(Status.TRUE, Reason.SUSPENDED, "spec.suspend is true: the scheduler is removed")
NOT_REGISTERED = Verdict(Status.UNKNOWN, Reason.REGISTERING, "not registered")


@dataclass(frozen=True, slots=True)
class Report:
    """What was found out about one resource at one generation."""

    generation: int
    registered: Verdict
    ticking: Verdict = NOT_REGISTERED
    references: Verdict = RESOLVED
    suspended: bool = False
    #: None: Redis could not be asked, so what was said last stays
    redis_safe: Verdict | None = None
    #: where it is registered; None: nowhere
    target: Target | None = None
    #: how often it was healed since the last report, and why last
    heals: int = 0
    heal_reason: str | None = None


def summary(report: Report) -> Verdict:
    """Ready: registered, and not known to miss its ticks.

    Before the first tick it is Ready, so that ``kubectl wait`` does not hang for a day; suspended too.
    """
    if report.references.status is not Status.TRUE:
        return report.references
    if report.suspended and report.registered.reason is Reason.SUSPENDED:
        return Verdict(Status.TRUE, Reason.SUSPENDED, SUSPENDED.message)
    if report.registered.status is not Status.TRUE:
        return report.registered
    if report.ticking.status is Status.FALSE:
        return report.ticking
    return Verdict(Status.TRUE, Reason.READY)


def next_status(previous: TickScheduleStatus, report: Report, now: datetime) -> TickScheduleStatus:
    """The status to write; equal to ``previous`` when there is nothing to write.

    Nothing in it changes with a tick: a steady state writes nothing.
    """
    verdicts = {
        ConditionType.READY: summary(report),
        ConditionType.REGISTERED: report.registered,
        ConditionType.TICKING: report.ticking,
        ConditionType.SUSPENDED: SUSPENDED if report.suspended else NOT_SUSPENDED,
        ConditionType.REFERENCES_RESOLVED: report.references,
    }
    if report.redis_safe is not None:
        verdicts[ConditionType.REDIS_SAFE] = report.redis_safe
    return TickScheduleStatus(
        observed_generation=report.generation,
        registered=_registered(previous.registered, report.target, now),
        heals=previous.heals + report.heals,
        last_heal=LastHeal(time=now, reason=report.heal_reason) if report.heal_reason else previous.last_heal,
        conditions=tuple(_conditions(previous, verdicts.items(), report.generation, now)),
    )


def _registered(previous: Registered | None, target: Target | None, now: datetime) -> Registered | None:
    if target is None:
        return None
    place = target.place
    found = Registered(
        redis=target.redis, prefix=place.prefix, queue_name=place.queue, scheduler_id=place.scheduler_id, time=now
    )
    if previous is not None and found.model_copy(update={"time": previous.time}) == previous:
        return previous
    return found


def _conditions(
    previous: TickScheduleStatus,
    verdicts: Iterable[tuple[ConditionType, Verdict]],
    generation: int,
    now: datetime,
) -> Iterable[Condition]:
    told = set()
    for kind, verdict in verdicts:
        told.add(kind)
        before = previous.condition(kind)
        changed = before is None or before.status is not verdict.status
        since = now.replace(microsecond=0) if changed or before is None else before.last_transition_time
        yield _condition(kind, verdict, generation, since)
    yield from (condition for condition in previous.conditions if condition.type not in told)


@lru_cache(maxsize=2048)
def _condition(kind: ConditionType, verdict: Verdict, generation: int, since: datetime) -> Condition:
    # Ten thousand schedules that were registered together share their conditions instead of holding six each.
    return Condition(
        type=kind,
        status=verdict.status,
        observed_generation=generation,
        last_transition_time=since,
        reason=verdict.reason,
        message=_cut(verdict.message),
    )


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
