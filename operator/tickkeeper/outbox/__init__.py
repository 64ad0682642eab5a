"""The outbox: rows to deliver, in PostgreSQL or in any store of the same interface."""

from tickkeeper.outbox.backoff import Backoff
from tickkeeper.outbox.enqueue import enqueue, enqueue_many, enqueue_many_sync, enqueue_sync
from tickkeeper.outbox.migrate import Migrated, migrate, migrate_sync
from tickkeeper.outbox.new_row import DuplicateRow, Enqueued, InvalidRow, NewRow
from tickkeeper.outbox.postgres import PostgresOutbox
from tickkeeper.outbox.postgres_dead import ReplayIncomplete
from tickkeeper.outbox.store import (
    Cancelled,
    Claim,
    DeadLetters,
    DeadRow,
    Failure,
    KindStats,
    ManagedOutbox,
    Oldest,
    OutboxStore,
    Pause,
    Replayed,
    Row,
    RowTransaction,
    SchemaError,
    Settled,
    Shown,
    Snooze,
    StoreUnavailable,
    TransactionalStore,
)

__all__ = [
    "Backoff",
    "Cancelled",
    "Claim",
    "DeadLetters",
    "DeadRow",
    "DuplicateRow",
    "Enqueued",
    "Failure",
    "InvalidRow",
    "KindStats",
    "ManagedOutbox",
    "Migrated",
    "NewRow",
    "Oldest",
    "OutboxStore",
    "Pause",
    "PostgresOutbox",
    "ReplayIncomplete",
    "Replayed",
    "Row",
    "RowTransaction",
    "SchemaError",
    "Settled",
    "Shown",
    "Snooze",
    "StoreUnavailable",
    "TransactionalStore",
    "enqueue",
    "enqueue_many",
    "enqueue_many_sync",
    "enqueue_sync",
    "migrate",
    "migrate_sync",
]
