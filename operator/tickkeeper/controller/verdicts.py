"""What a look at Redis means for one resource's status. Pure."""

from tickkeeper.api.conditions import Reason, Status
from tickkeeper.controller.charge import Charge, Intent, Outcome, Unreachable
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.plan import Plan, State
from tickkeeper.schedules.report import REGISTERED, Report
from tickkeeper.schedules.ticking import Verdict

_UNKNOWN_TICKING = Verdict(Status.UNKNOWN, Reason.REDIS_UNREACHABLE, "Redis cannot be asked")
_NO_TICKS = Verdict(Status.FALSE, Reason.SUSPENDED, "suspended")
_NOT_IN_PLACE = Verdict(Status.UNKNOWN, Reason.REGISTERING, "not registered")


def is_cleared(outcome: Outcome) -> bool:
    """Whether nothing of ours is left to remove."""
    return (
        not isinstance(outcome, Unreachable)
        and outcome.error is None
        and outcome.after.state in (State.ABSENT, State.FOREIGN_OWNER, State.WRONG_TYPE, State.HEALTHY)
    )


def healed_by(charge: Charge, outcome: Outcome, *, registered_before: bool) -> Plan | None:
    """The plan that restored the schedule, None where nothing was broken: a first registration and an edit heal
    nothing."""
    if isinstance(outcome, Unreachable) or not outcome.mended or charge.intent is not Intent.KEEP:
        return None
    if outcome.plan.state is State.OUTDATED or not registered_before:
        return None
    return outcome.plan


def report_of(charge: Charge, outcome: Outcome, target: Target, *, was_registered: bool, healed: Plan | None) -> Report:
    """The report of one look."""
    generation = charge.desired.owner.generation
    kept = target if was_registered else None
    suspended = charge.intent is Intent.REMOVE
    if isinstance(outcome, Unreachable):
        registered = Verdict(Status.FALSE, Reason.REDIS_UNREACHABLE, outcome.message)
        return Report(generation, registered, _UNKNOWN_TICKING, suspended=suspended, target=kept)
    safe = outcome.redis_safe
    if suspended:
        cleared = is_cleared(outcome)
        message = "spec.suspend is true: the scheduler is removed" if cleared else outcome.error or "being removed"
        registered = Verdict(Status.FALSE, Reason.SUSPENDED if cleared else Reason.REGISTERING, message)
        return Report(
            generation, registered, _NO_TICKS, suspended=True, redis_safe=safe, target=None if cleared else kept
        )
    if outcome.in_place:
        return Report(
            generation,
            REGISTERED,
            charge.watch.verdict,
            redis_safe=safe,
            target=target,
            heals=0 if healed is None else 1,
            heal_reason=None if healed is None else healed.state,
        )
    reason = outcome.after.reason or Reason.REGISTERING
    message = outcome.error or outcome.after.message or "another writer changed it at the same moment"
    return Report(generation, Verdict(Status.FALSE, reason, message), _NOT_IN_PLACE, redis_safe=safe, target=kept)
