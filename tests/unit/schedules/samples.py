"""One schedule as the core sees it, to be varied by tests."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tickkeeper.api.conditions import Reason, Status
from tickkeeper.schedules.claims import Target
from tickkeeper.schedules.desired import Desired, Every, Owner, Place, ResourceKey
from tickkeeper.schedules.observed import JobAt, Observed, Record
from tickkeeper.schedules.plan import Plan, State, Step
from tickkeeper.schedules.report import REGISTERED, Report
from tickkeeper.schedules.ticking import Verdict

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
NOW = int(NOON.timestamp() * 1000)
KEY = ResourceKey("apps", "acme")
OWNER = Owner("cluster-1", KEY, "uid-1", 3)
PLACE = Place("bull", "ticks", "drain.acme")
TARGET = Target("redis://redis:6379/0", PLACE)
EVERY = Every(60_000, 12_345)
DATA = {"tenantId": "acme", "tickkeeper": {"name": "acme"}}
OPTS = {"attempts": 1, "removeOnComplete": {"count": 100, "age": 86_400}}
DESIRED = Desired(OWNER, PLACE, EVERY, "drain", DATA, OPTS)

UPSERT = Plan(State.MISSING, (Step.UPSERT,), message="the scheduler was gone")
HEALTHY = Plan(State.HEALTHY)


def record(**changes: Any) -> Record:
    """The hash of DESIRED, as it must be."""
    base = Record("drain", "60000", "12345", data=DATA, opts=OPTS, iterations=1, owner=OWNER)
    return replace(base, **changes)


def observed(**changes: Any) -> Observed:
    """DESIRED in Redis, healthy."""
    base = Observed(NOW, EVERY.next_slot(NOW), record(), JobAt.DELAYED, job_intact=True)
    return replace(base, **changes)


def report(**changes: Any) -> Report:
    """Registered, its first tick still to come."""
    awaiting = Verdict(Status.UNKNOWN, Reason.AWAITING_FIRST_TICK)
    base = Report(3, REGISTERED, awaiting, redis_safe=Verdict(Status.TRUE, Reason.NO_EVICTION), target=TARGET)
    return replace(base, **changes)
