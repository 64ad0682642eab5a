"""bullmq's repeat strategy for a worker, which also serves schedules that applications registered themselves."""

import time
from collections.abc import Mapping
from typing import Any

from bullmq.job_scheduler import default_repeat_strategy

from tickkeeper.api.cron import CronError
from tickkeeper.bullmq import cron as shared
from tickkeeper.telemetry.logs import get_logger

_log = get_logger(__name__)


def repeat_strategy(millis: int, opts: Mapping[str, Any]) -> int | None:
    """The next fire after ``millis`` (epoch ms) of a scheduler's ``pattern`` and ``tz``; None without a pattern.

    As the operator computes it; but a pattern outside our grammar is an application's own (six fields, ``@daily``):
    bullmq's own strategy serves it, so that its chain goes on.
    """
    if opts.get("pattern") and opts.get("immediately"):
        return int(time.time() * 1000)
    try:
        return shared.repeat_strategy(max(millis, _start(opts)), opts)
    except CronError as error:
        _log.debug("cron pattern left to bullmq", pattern=opts.get("pattern"), reason=str(error))
        fire: int | None = default_repeat_strategy(millis, dict(opts))
        return fire


def _start(opts: Mapping[str, Any]) -> int:
    """``startDate`` is written in ms by bullmq; anything else does not move the start."""
    start = opts.get("startDate")
    return int(start) if isinstance(start, int | float) and not isinstance(start, bool) else 0
