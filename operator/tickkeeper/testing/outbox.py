"""An outbox in memory, for the tests of handlers."""

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal
from uuid import UUID, uuid4

from tickkeeper.outbox.arguments import (
    checked_limit,
    lease_seconds,
    sorted_ids,
    unique_failures,
    unique_kinds,
    unique_snoozes,
)
from tickkeeper.outbox.backoff import Backoff
from tickkeeper.outbox.new_row import DuplicateRow, Enqueued, NewRow, parameters
from tickkeeper.outbox.postgres import DEFAULT_LEASE, MAX_BATCH_BYTES
from tickkeeper.outbox.store import (
    READY_COUNTED,
    Cancelled,
    Claim,
    Failure,
    KindStats,
    Oldest,
    Row,
    Settled,
    Shown,
    Snooze,
)
from tickkeeper.testing.dead import InMemoryDeadLetters
from tickkeeper.testing.entry import Entry
