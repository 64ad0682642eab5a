"""What a consumer's events become: log lines and counts. One report a fault, however many events bullmq makes of it."""

import time
from collections import OrderedDict
from typing import Any

from bullmq import Job, Worker

from tickkeeper.telemetry.logs import get_logger
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.telemetry.redaction import describe

_log = get_logger(__name__)

_SAY_AGAIN = 10.0
_MOST_REMEMBERED = 1000
# bullmq's script errors are TypeErrors with a text.
_LOCK_TEXTS = ("Missing lock for job", "Lock mismatch for job", "could not renew lock", "is not in the active state")


def attach(consumer: Worker, queue: str, metrics: WorkerMetrics) -> None:
    """Listen to one consumer."""
    reports = _Reports(queue, metrics)
    consumer.on("completed", reports.completed)
    consumer.on("failed", reports.failed)
    consumer.on("stalled", reports.stalled)
    consumer.on("lockRenewalFailed", reports.locks_lost)
    consumer.on("error", reports.error)


def kind_of(error: BaseException) -> str:
    """The ``type`` label of an error."""
    text = str(error)
    if any(part in text for part in _LOCK_TEXTS):
        return "lock"
    if "repeatable job" in text or "job scheduler iteration" in text:
        return "scheduler"
    if type(error).__module__.startswith("redis"):
        return "redis"
    return "script" if isinstance(error, TypeError) else "other"


class _Reports:
    def __init__(self, queue: str, metrics: WorkerMetrics) -> None:
        self._queue = queue
        self._metrics = metrics
        self._lost: OrderedDict[str, None] = OrderedDict()
        self._said: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def completed(self, job: Job, result: Any) -> None:
        worked = isinstance(result, dict) and (result.get("claimed") or result.get("dead"))
        (_log.info if worked else _log.debug)("tick", queue=self._queue, job=job.id, result=result)

    def failed(self, job: Job, error: Exception) -> None:
        _log.warning("tick failed", queue=self._queue, job=job.id, name=job.name, error=error)

    def stalled(self, job_id: str) -> None:
        self._metrics.stalled.labels(self._queue).inc()
        _log.warning("job of a lost worker put back", queue=self._queue, job=job_id)

    def locks_lost(self, job_ids: list[str]) -> None:
        for job_id in job_ids:
            self._lock_lost(job_id)

    def error(self, error: Exception, job: Job | None = None) -> None:
        kind = kind_of(error)
        if kind == "lock":
            job_id = job.id if job is not None else _job_in(str(error))
            self._lock_lost(job_id)
            return
        self._metrics.errors.labels(self._queue, kind).inc()
        self._say(kind, error)

    def _lock_lost(self, job_id: str) -> None:
        if job_id in self._lost:
            return
        _remember(self._lost, job_id, None)
        self._metrics.lock_losses.labels(self._queue).inc()
        _log.warning("lock of a running job lost; its rows keep their own leases", queue=self._queue, job=job_id)

    def _say(self, kind: str, error: Exception) -> None:
        """A fault that lasts makes ten events a second: one line in ten seconds, with the number left out."""
        text, now = describe(error), time.monotonic()
        said, left_out = self._said.get(text, (float("-inf"), 0))
        if now - said < _SAY_AGAIN:
            _remember(self._said, text, (said, left_out + 1))
            return
        _remember(self._said, text, (now, 0))
        _log.error("consumer error", queue=self._queue, type=kind, error=text, repeated=left_out)


def _remember(table: OrderedDict[str, Any], key: str, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > _MOST_REMEMBERED:
        table.popitem(last=False)


def _job_in(text: str) -> str:
    """The job id in bullmq's ``… for job <id>``."""
    return text.partition("for job ")[2].split(" ")[0].rstrip(".") or text
