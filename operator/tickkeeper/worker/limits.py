"""What bounds one tick, and when it ends. Pure."""

from dataclasses import dataclass
from datetime import timedelta

from tickkeeper.api.tick import TickOptions
from tickkeeper.worker.handlers import HandlerError, Kinds

DEFAULT_BATCH_SIZE = 500
DEFAULT_HANDLER_CONCURRENCY = 16
#: One claim is under way while another batch is handled; a third cost more CPU and was no faster.
DEFAULT_LANES = 2

# One interval, so that a schedule may use what it asked for, within what is fair to the others on the queue. While the
# queue has slots to spare nobody waits, and a tick goes on until nothing is left.
_LEAST_BUDGET = timedelta(seconds=1)
_MOST_BUDGET = timedelta(minutes=1)
_BUDGET_WITHOUT_INTERVAL = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Limits:
    """``wanted`` None means every kind that has a handler; ``lease`` None means the store's own.

    ``concurrency``: handlers at once; ``lanes``: batches at once, of which the later ones wait for handlers.
    ``firm``: the budget was asked for, and is kept even where nobody waits.
    """

    wanted: Kinds | None = None
    lease: timedelta | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    budget: timedelta = _BUDGET_WITHOUT_INTERVAL
    concurrency: int = DEFAULT_HANDLER_CONCURRENCY
    lanes: int = DEFAULT_LANES
    firm: bool = False


def limits_of(tick: TickOptions, *, every_ms: int | None, defaults: Limits) -> Limits:
    """The tick's own options, else the worker's; the budget follows from the interval when neither says.

    Raises ValueError for kinds that are neither names nor ``prefix.*``.
    """
    try:
        wanted = defaults.wanted if tick.kinds is None else Kinds.of(*tick.kinds)
    except HandlerError as error:
        raise ValueError(f"tickkeeper.tick.kinds: {error}") from None
    return Limits(
        wanted=wanted,
        lease=defaults.lease if tick.lease_ms is None else timedelta(milliseconds=tick.lease_ms),
        batch_size=tick.batch_size or defaults.batch_size,
        budget=budget_of(tick.time_budget_ms, every_ms, defaults.budget),
        firm=tick.time_budget_ms is not None,
        concurrency=defaults.concurrency,
        lanes=defaults.lanes,
    )


def budget_of(budget_ms: int | None, every_ms: int | None, default: timedelta) -> timedelta:
    """How long a tick goes on claiming."""
    if budget_ms is not None:
        return timedelta(milliseconds=budget_ms)
    if every_ms is None:
        return default
    return min(max(timedelta(milliseconds=every_ms), _LEAST_BUDGET), _MOST_BUDGET)


def ended(
    *, stop_reason: str | None, elapsed: float, budget: timedelta, empty: bool, goes_on: bool = False
) -> str | None:
    """Why the tick ends now, in the order in which it matters; None to claim once more.

    ``goes_on``: also beyond its budget, since nobody waits for its slot.
    """
    if stop_reason is not None:
        return stop_reason
    if empty:
        return "empty"
    if elapsed >= budget.total_seconds() and not goes_on:
        return "budget"
    return None
