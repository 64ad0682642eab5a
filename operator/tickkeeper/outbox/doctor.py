"""Judges an outbox' database: what is in order, what is worth knowing, and what needs a person, with its remedy."""

from collections.abc import Callable, Iterator

from tickkeeper.outbox import doctor_database as database
from tickkeeper.outbox import doctor_rows as rows
from tickkeeper.outbox.doctor_facts import Facts, gather
from tickkeeper.outbox.doctor_finding import Case, Finding, Level, Limits, Role, Schedules

__all__ = ["CHECKS", "Facts", "Finding", "Level", "Limits", "Role", "Schedules", "diagnose", "gather"]

#: In the order of what rests on what.
CHECKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    database.server,
    database.session,
    database.pooler,
    database.schema,
    database.grants,
    database.indexes,
    database.vacuum,
    database.horizon,
    rows.rows,
    rows.held_back,
    rows.schedules,
)


def diagnose(facts: Facts, schedules: Schedules, limits: Limits | None = None) -> list[Finding]:
    """Everything to be said, in a fixed order."""
    case = Case(facts, schedules, limits or Limits())
    return [finding for check in CHECKS for finding in check(case)]
