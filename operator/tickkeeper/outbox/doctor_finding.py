"""What a check of the doctor's is given, and what it says."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from tickkeeper.outbox.doctor_facts import Facts

Level = Literal["ok", "note", "fault", "skipped"]
Role = Literal["producer", "worker", "reader"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing seen. ``fault``: a person is needed, and ``remedy`` says what to do; ``skipped``: it was not asked."""

    check: str
    level: Level
    message: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on things are faults. ``role``: whose grants are looked at; times in seconds."""

    role: Role = "worker"
    late: float = 900.0
    held: float = 300.0
    #: how long a lease that ran out may go without anybody claiming the row
    expired: float = 300.0
    dead_tuples: int = 1_000_000
    hot_share: float = 0.3


@dataclass(frozen=True, slots=True)
class Schedules:
    """Tenants that have rows and no schedule; None where that was not asked, and ``why`` not. ``where``: was looked."""

    without: Collection[str] | None
    why: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """What a check is given."""

    facts: Facts
    schedules: Schedules
    limits: Limits


def ok(check: str, message: str) -> Finding:
    """In order."""
    return Finding(check, "ok", message)


def note(check: str, message: str) -> Finding:
    """Worth knowing."""
    return Finding(check, "note", message)


def fault(check: str, message: str, remedy: str) -> Finding:
    """Needs a person."""
    return Finding(check, "fault", message, remedy)


def skipped(check: str, message: str) -> Finding:
    """Could not be asked."""
    return Finding(check, "skipped", message)


def ago(seconds: float) -> str:
    """``3 h ago``."""
    return f"{duration(seconds)} ago"


def duration(seconds: float) -> str:
    """``3 h``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
