"""Bounds of numbers and sizes that more than one module needs."""

from typing import NamedTuple


class Bounds(NamedTuple):
    """Inclusive at both ends."""

    least: int
    most: int


#: one day and one year in milliseconds
_DAY_MS = 86_400_000
_YEAR_MS = 365 * _DAY_MS

EVERY_MS = Bounds(10, _YEAR_MS)
OFFSET_MS = Bounds(1, _YEAR_MS)
#: names: tenant, job name, kind; in Unicode code points
NAME_LENGTH = Bounds(1, 128)
LEASE_MS = Bounds(1_000, _DAY_MS)
BATCH_SIZE = Bounds(1, 10_000)
TIME_BUDGET_MS = Bounds(10, _DAY_MS)
