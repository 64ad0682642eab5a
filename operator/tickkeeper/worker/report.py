"""What one tick tells of its rows: metrics, and a log line for each failure."""

from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter

from tickkeeper.outbox.store import Row
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.worker.handlers import Handler, Registry
from tickkeeper.worker.invoke import Job
from tickkeeper.worker.outcome import Fate, Verdict

_log = get_logger(__name__)

_kind = attrgetter("kind")


class Report:
    """Counts and times by the kind's label; a pattern stays a pattern, so that labels are bounded."""

    def __init__(self, registry: Registry, metrics: WorkerMetrics | None) -> None:
        self._registry = registry
        self._metrics = metrics
        self._labels: dict[str, str] = {}
        self._took: dict[str, Callable[[float], None]] = {}

    def called(self, job: Job, _verdict: Verdict, seconds: float) -> None:
        """A handler has been called."""
        if self._metrics is not None:
            handler, argument = job
            kind = (argument[0] if argument.__class__ is list else argument).kind
            took = self._took.get(kind)
            if took is None:
                took = self._took[kind] = self._metrics.handler_seconds.of(self._label(handler, kind))
            took(seconds)

    def judged(self, row: Row, verdict: Verdict) -> None:
        """What is to become of a row."""
        if verdict.fate in (Fate.RETRIED, Fate.DEAD):
            _tell(row, verdict)

    def settled(self, rows: Iterable[Row], fate: Fate) -> None:
        """Outcomes were written."""
        if self._metrics is None:
            return
        self._metrics.handler_seconds.fold()
        for kind, count in Counter(map(_kind, rows)).items():
            handler = self._registry.find(kind)
            if handler is not None:
                self._metrics.rows.labels(self._label(handler, kind), fate.value).inc(count)

    def fenced(self, count: int) -> None:
        """Rows were no longer ours."""
        if self._metrics is not None and count:
            self._metrics.rows_fenced.inc(count)

    def buried(self, tenant: str, count: int) -> None:
        """Rows went to the dead letters in a claim, without a handler."""
        if not count:
            return
        _log.warning(
            "rows went to the dead letters: their last attempt gave no answer; see tickkeeper outbox dead",
            tenant=tenant,
            rows=count,
        )
        if self._metrics is not None:
            self._metrics.rows_buried.inc(count)

    def claimed(self, rows: int, seconds: float) -> None:
        """A claim was answered."""
        if self._metrics is not None:
            self._metrics.claim_seconds.observe(seconds)
            self._metrics.claim_rows.observe(rows)

    def _label(self, handler: Handler, kind: str) -> str:
        label = self._labels.get(kind)
        if label is None:
            label = self._labels[kind] = _label(handler, kind)
        return label


def _tell(row: Row, verdict: Verdict) -> None:
    _log.warning(
        "row failed",
        tenant=row.tenant_id,
        kind=row.kind,
        row=str(row.id),
        attempt=row.attempts,
        attempts=row.max_attempts,
        # The store buries a row whose last attempt this was.
        outcome=(Fate.DEAD if row.attempts >= row.max_attempts else verdict.fate).value,
        error=verdict.error,
    )


def _label(handler: Handler, kind: str) -> str:
    if kind in handler.kinds.exact:
        return kind
    fitting = [prefix for prefix in handler.kinds.prefixes if kind.startswith(prefix)]
    return f"{max(fitting, key=len)}*" if fitting else "?"
