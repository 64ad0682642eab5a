"""Rows that may kill their worker, or cannot afford another's doing so, run one at a time in a process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

#: Seconds in which nothing is claimed after such a row began: most that kill their worker do it at once. Longer would
#: let one slow row stop every tick of the process.
_QUIET = 1.0


class Solitude:
    """``async with`` it to run a row alone; claim ``with claiming()``, after ``room()``.

    A claim counts the attempts of what it takes. One that is under way when the process is killed may have taken a row
    on its last attempt, which then dies although nobody has tried it. So a row alone begins when no claim is under way,
    and for a moment none begins.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._claims = 0
        self._unclaimed = asyncio.Event()
        self._unclaimed.set()
        self._open = asyncio.Event()
        self._open.set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def taken(self) -> bool:
        """Whether a row runs alone, or is about to."""
        return self._lock.locked()

    async def room(self) -> None:
        """Wait until claims may begin."""
        while not self._open.is_set():
            await self._open.wait()

    async def over(self) -> None:
        """Wait until the row that runs alone, if there is one, has run."""
        async with self._lock:
            pass

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """A claim, and the handing back of what it should not have taken."""
        self._claims += 1
        self._unclaimed.clear()
        try:
            yield
        finally:
            self._claims -= 1
            if not self._claims:
                self._unclaimed.set()

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        try:
            self._open.clear()
            await self._unclaimed.wait()
        except BaseException:
            self._leave()
            raise
        self._timer = asyncio.get_running_loop().call_later(_QUIET, self._open.set)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._leave()

    def _leave(self) -> None:
        self._open.set()
        self._lock.release()
