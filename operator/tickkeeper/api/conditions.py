"""Condition types and reasons of a TickSchedule's status: the one list of both.

The words are part of the API: alerts, ``kubectl wait`` and dashboards match them, so none is renamed without a
new API version. The form is metav1.Condition's (Kubernetes API conventions, "Typical status properties").
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition speaks of; Ready is the summary of the others."""

    READY = "Ready"
    REGISTERED = "Registered"
    TICKING = "Ticking"
    REDIS_SAFE = "RedisSafe"
    SUSPENDED = "Suspended"
    REFERENCES_RESOLVED = "ReferencesResolved"


class Status(StrEnum):
    """metav1.ConditionStatus."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition has its status: CamelCase, one word a cause."""

    # Registered=True
    REGISTERED = "Registered"
    # Registered=False
    REDIS_UNREACHABLE = "RedisUnreachable"
    CONFLICT = "Conflict"
    FOREIGN_OWNER = "ForeignOwner"
    INVALID_SPEC = "InvalidSpec"
    REFERENCE_NOT_FOUND = "ReferenceNotFound"
    WRONG_TYPE = "WrongType"
    CLUSTER_PREFIX = "ClusterPrefix"
    NOT_ALLOWED = "NotAllowed"
    FIGHTING = "Fighting"
    OPERATOR_PAUSED = "OperatorPaused"
    REGISTERING = "Registering"
    # Ticking
    TICKING = "Ticking"
    AWAITING_FIRST_TICK = "AwaitingFirstTick"
    NO_WORKERS = "NoWorkers"
    OVERDUE = "Overdue"
    QUEUE_PAUSED = "QueuePaused"
    BUSY = "Busy"
    RATE_LIMITED = "RateLimited"
    BACKLOG = "Backlog"
    # RedisSafe
    NO_EVICTION = "NoEviction"
    EVICTION_POLICY = "EvictionPolicy"
    CLOCK_SKEW = "ClockSkew"
    # Suspended, ReferencesResolved, Ready
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"
    RESOLVED = "Resolved"
    READY = "Ready"


class EventReason(StrEnum):
    """Reasons of the Kubernetes events that a transition posts."""

    REGISTERED = "Registered"
    HEALED = "Healed"
    DRIFT_CORRECTED = "DriftCorrected"
    CONFLICT = "Conflict"
    REDIS_UNREACHABLE = "RedisUnreachable"
    REDIS_RECOVERED = "RedisRecovered"
    OLD_REDIS_UNREACHABLE = "OldRedisUnreachable"
    NO_WORKERS = "NoWorkers"
    TICKING = "Ticking"
    REMOVED = "Removed"
    EVICTION_POLICY = "EvictionPolicy"
    INVALID_SPEC = "InvalidSpec"
