"""Medians, ranges and percentiles, and how they are written."""

import math
import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], rank: float) -> float:
    """The smallest value that at least ``rank`` percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(rank / 100 * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle one, or the mean of the middle two."""
    return statistics.median(values)


def number(value: float) -> str:
    """Three significant digits, never in powers of ten; what is infinite never came."""
    if math.isinf(value):
        return "never"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def spread(values: Sequence[float]) -> str:
    """``median (lowest-highest)``, or the one value there is."""
    if not values:
        return "-"
    low, middle, high = number(min(values)), number(median(values)), number(max(values))
    return middle if low == high else f"{middle} ({low}-{high})"
