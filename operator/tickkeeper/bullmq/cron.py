"""The repeat strategy that operator and worker share: cronsim in place of bullmq's croniter.

croniter is wrong at daylight-saving changes (measured), and two evaluators would disagree about the next tick.
"""

from collections.abc import Mapping
from typing import Any

from tickkeeper.api.cron import next_fire_ms


def repeat_strategy(millis: int, opts: Mapping[str, Any]) -> int | None:
    """bullmq's ``repeat_strategy``: the next fire strictly after ``millis`` (epoch ms); None without a pattern."""
    pattern = opts.get("pattern")
    if not pattern:
        return None
    return next_fire_ms(pattern, opts.get("tz") or "UTC", int(millis))
