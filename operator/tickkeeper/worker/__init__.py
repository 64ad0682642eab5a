"""The worker, and what handlers are written with: ``handler``, ``Row``, ``Retry``, ``Dead``, ``Snooze``."""

from tickkeeper.outbox.store import Row
from tickkeeper.worker.handlers import handler
from tickkeeper.worker.outcome import Dead, Outcome, Retry, Snooze

__all__ = ["Dead", "Outcome", "Retry", "Row", "Snooze", "handler"]
