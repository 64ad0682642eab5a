"""Which changes deserve a Kubernetes event: transitions only, never a state that goes on."""

from collections.abc import Iterator
from dataclasses import dataclass

from tickkeeper.api.conditions import ConditionType, EventReason, Reason, Status
from tickkeeper.api.status import TickScheduleStatus
from tickkeeper.schedules.plan import Plan, State
from tickkeeper.schedules.report import Report
from tickkeeper.schedules.ticking import Verdict


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event to post."""

    reason: str
    message: str
    warning: bool = False


def announcements(previous: TickScheduleStatus, report: Report, healed: Plan | None) -> Iterator[Announcement]:
    """What changed from ``previous`` to ``report``; ``healed`` is the plan that restored the schedule, if one did."""
    if healed is not None:
        yield _heal(healed)
    yield from _registration(previous, report, healed)
    yield from _ticking(previous, report)
    safe = report.redis_safe
    if safe is not None and safe.status is Status.FALSE and _turned(previous, ConditionType.REDIS_SAFE, safe):
        yield Announcement(safe.reason, safe.message, warning=True)


def _heal(plan: Plan) -> Announcement:
    if plan.state is State.DIFFERS:
        return Announcement(EventReason.DRIFT_CORRECTED, f"corrected what another writer changed: {plan.message}")
    return Announcement(EventReason.HEALED, f"registered again ({plan.state}): {plan.message}")


def _registration(previous: TickScheduleStatus, report: Report, healed: Plan | None) -> Iterator[Announcement]:
    now = report.registered
    before = previous.condition(ConditionType.REGISTERED)
    if before is not None and (before.status, before.reason) == (now.status, now.reason):
        return
    if now.status is Status.TRUE:
        if before is not None and before.reason == Reason.REDIS_UNREACHABLE:
            yield Announcement(EventReason.REDIS_RECOVERED, "Redis answers again")
        elif healed is None and report.target is not None:
            yield Announcement(EventReason.REGISTERED, f"registered as {report.target.place} in {report.target.redis}")
    elif now.reason is Reason.SUSPENDED:
        if before is not None and before.status is Status.TRUE:
            yield Announcement(EventReason.REMOVED, "removed: spec.suspend is true")
    elif now.reason is not Reason.REGISTERING:
        yield Announcement(now.reason, now.message, warning=now.reason is not Reason.OPERATOR_PAUSED)


def _ticking(previous: TickScheduleStatus, report: Report) -> Iterator[Announcement]:
    now = report.ticking
    before = previous.condition(ConditionType.TICKING)
    if before is not None and (before.status, before.reason) == (now.status, now.reason):
        return
    if now.status is Status.FALSE and now.reason is not Reason.SUSPENDED:
        yield Announcement(now.reason, now.message, warning=True)
    elif now.status is Status.TRUE and before is not None and before.status is Status.FALSE:
        yield Announcement(EventReason.TICKING, "ticks are taken again")


def _turned(previous: TickScheduleStatus, kind: ConditionType, verdict: Verdict) -> bool:
    before = previous.condition(kind)
    return before is None or (before.status, before.reason) != (verdict.status, verdict.reason)
