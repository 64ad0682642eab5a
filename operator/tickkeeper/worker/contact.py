"""Whether a queue's Redis answers, as seen by the worker itself: bullmq tells nothing during an outage."""

import time

from tickkeeper.bullmq.errors import explain
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.telemetry.metrics import WorkerMetrics

_log = get_logger(__name__)

# The longest wait for a job is 10 s, and a dead connection is given up 3 s later.
_STALE_AFTER = 20.0
_SAY_AGAIN = 60.0


class Contact:
    """The last exchange with one queue's Redis; one log line a change, and one a minute while it is away."""

    def __init__(self, queue: str, metrics: WorkerMetrics) -> None:
        self._queue = queue
        self._metrics = metrics
        self._answered: float | None = None
        self._error: Exception | None = None
        self._away_since = 0.0
        self._said = 0.0
        metrics.redis_up.labels(queue).set(0)

    def note(self, error: Exception | None) -> None:
        """Tell of one exchange: None when it worked."""
        now = time.monotonic()
        if error is None:
            if self._error is not None:
                _log.info("redis answers again", queue=self._queue, after_seconds=round(now - self._away_since, 1))
            self._answered, self._error = now, None
            self._metrics.redis_up.labels(self._queue).set(1)
            self._metrics.last_contact.labels(self._queue).set(time.time())
            return
        if self._error is None:
            self._away_since, self._said = now, 0.0
        self._error = error
        self._metrics.redis_up.labels(self._queue).set(0)
        self._metrics.errors.labels(self._queue, "redis").inc()
        if now - self._said >= _SAY_AGAIN:
            self._said = now
            _log.warning("redis does not answer; trying on", queue=self._queue, error=explain(error))

    @property
    def fault(self) -> str | None:
        """Why the queue is not being served; None when it is."""
        if self._error is not None:
            return f"redis: {explain(self._error)}"
        if self._answered is None:
            return "redis: not connected yet"
        silent = time.monotonic() - self._answered
        return f"redis: silent for {silent:.0f} s" if silent > _STALE_AFTER else None
