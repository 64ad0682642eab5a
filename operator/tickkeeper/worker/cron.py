"""bullmq's repeat strategy by cronsim, as the operator evaluates cron: both must name the same next fire."""

import time
from collections.abc import Mapping
from typing import Any

from bullmq.job_scheduler import default_repeat_strategy

from tickkeeper.api.cron import CronError, next_fire_ms
from tickkeeper.telemetry.logs import get_logger

_log = get_logger(__name__)


def repeat_strategy(millis: int, opts: Mapping[str, Any]) -> int | None:
    """The next fire after ``millis`` (epoch ms) of a scheduler's ``pattern`` and ``tz``; None without a pattern.

    A pattern outside our grammar is an application's own (six fields, ``@daily``): bullmq's own strategy serves it, so
    that its chain goes on.
    """
    pattern = opts.get("pattern")
    if not pattern:
        return None
    if opts.get("immediately"):
        return int(time.time() * 1000)
    try:
        return next_fire_ms(str(pattern), str(opts.get("tz") or "UTC"), max(millis, _start(opts)))
    except CronError as error:
        _log.debug("cron pattern left to bullmq", pattern=pattern, reason=str(error))
        fire: int | None = default_repeat_strategy(millis, dict(opts))
        return fire


def _start(opts: Mapping[str, Any]) -> int:
    """``startDate`` is written in ms by bullmq; anything else does not move the start."""
    start = opts.get("startDate")
    return int(start) if isinstance(start, int | float) and not isinstance(start, bool) else 0
