"""Bounds of single handlers, over all ticks of a process."""

import asyncio
from types import TracebackType

from tickkeeper.worker.handlers import Handler


class Gate:
    """How many calls of one handler may run at once in this process."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = asyncio.Semaphore(most)

    async def __aenter__(self) -> None:
        """Wait for a turn."""
        await self._free.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the turn up."""
        self._free.release()


class Gates:
    """The gates of the handlers that have a bound of their own; one instance a process."""

    def __init__(self) -> None:
        self._gates: dict[int, Gate] = {}

    def of(self, handler: Handler) -> Gate | None:
        """Its gate; None where only the tick's own bound holds."""
        if handler.concurrency is None:
            return None
        return self._gates.setdefault(id(handler), Gate(handler.concurrency))
