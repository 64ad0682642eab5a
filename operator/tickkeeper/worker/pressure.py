"""Back-pressure: how much one process holds claimed at once, over all of its ticks. What it leaves, others may take.

A claim is bounded by rows and bytes already; this bounds their sum. Without it ten ticks of two lanes could hold twenty
claims of 32 MiB each.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tickkeeper.outbox.store import Row
from tickkeeper.worker.garbage import Garbage

DEFAULT_MAX_ROWS = 10_000
DEFAULT_MAX_BYTES = 64 * 1024 * 1024

# How often one that waits looks whether it still wants to.
_LOOK = 0.2
# A batch is weighed by a sample: exactness would cost more than it is worth.
_SAMPLE = 8
_MOST_NODES = 1_000
_NODE = 16


@dataclass(frozen=True, slots=True)
class Load:
    """Rows, and roughly the bytes of their payloads."""

    rows: int = 0
    bytes: int = 0


class Pressure:
    """What is in hand. The last claim may go beyond the bounds; the next waits until there is room again."""

    def __init__(self, *, max_rows: int = DEFAULT_MAX_ROWS, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._most = Load(max_rows, max_bytes)
        self._held = Load()
        self._less = asyncio.Event()
        self._garbage = Garbage()

    @property
    def held(self) -> Load:
        """What is in hand now."""
        return self._held

    @property
    def full(self) -> bool:
        """Whether the next claim has to wait."""
        return self._held.rows >= self._most.rows or self._held.bytes >= self._most.bytes

    async def room(self, wanted: Callable[[], bool]) -> None:
        """Wait until there is room, or ``wanted`` says no more."""
        while self.full and wanted():
            self._less.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._less.wait()

    def take(self, rows: Sequence[Row]) -> Load:
        """Rows were claimed; give the load back when they are settled."""
        load = Load(len(rows), weigh(rows))
        self._held = Load(self._held.rows + load.rows, self._held.bytes + load.bytes)
        return load

    def give(self, load: Load) -> None:
        """Rows were settled."""
        self._held = Load(self._held.rows - load.rows, self._held.bytes - load.bytes)
        self._less.set()
        self._garbage.handled(load.bytes)


def weigh(rows: Sequence[Row]) -> int:
    """Roughly the bytes of the rows' payloads, from a sample of them."""
    if not rows:
        return 0
    sample = rows[:: max(1, len(rows) // _SAMPLE)]
    return sum(_weight(row.payload) for row in sample) * len(rows) // len(sample)


def _weight(payload: Any) -> int:
    """Characters and nodes; of a value with very many nodes the rest is estimated by those seen."""
    waiting, nodes, weight = [payload], 0, 0
    while waiting and nodes < _MOST_NODES:
        value = waiting.pop()
        nodes += 1
        weight += _NODE
        if isinstance(value, str):
            weight += len(value)
        elif isinstance(value, dict):
            weight += sum(map(len, value))
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return weight + len(waiting) * weight // max(nodes, 1)
