"""Holding a batch's lease while its handlers run."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from uuid import UUID

from tickkeeper.bullmq.cancellation import raise_if_cancelled
from tickkeeper.outbox.store import OutboxStore
from tickkeeper.telemetry.logs import get_logger

_log = get_logger(__name__)

# The lease counts as over a little early: a handler must have stopped before somebody else may claim its row.
_SAFE_SHARE = 0.9


class Lease:
    """One batch's lease, measured on this process's monotonic clock from before the claim was sent.

    So the database's clock and ours need not agree, and our idea of its end is never later than the truth.
    """

    def __init__(
        self, store: OutboxStore, lease_id: UUID, length: timedelta, *, since: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._length = length
        self._since = since
        self._clock = clock
        self.id = lease_id

    @property
    def left(self) -> float:
        """Seconds for which the rows are surely still ours; 0 or less when that is over."""
        return self._since + self._length.total_seconds() * _SAFE_SHARE - self._clock()

    async def hold(self, outstanding: Collection[int | UUID]) -> None:
        """Renew at each third of the lease, one write a time, for the rows in ``outstanding`` (a live view).

        Returns when the lease is lost: it could not be renewed in time, or no row was ours any more.
        """
        third = self._length.total_seconds() / 3
        while True:
            raise_if_cancelled()
            await asyncio.sleep(max(0.0, self._since + third - self._clock()))
            if not outstanding:
                await asyncio.sleep(third)  # everything is written; the batch is about to end
                continue
            started = self._clock()
            try:
                async with asyncio.timeout(max(0.0, self.left)):
                    settled = await self._store.renew(self.id, tuple(outstanding), self._length)
            except Exception as error:  # noqa: BLE001 - whatever it was, what counts is whether time is left
                if self.left <= 0:
                    _log.warning("lease could not be renewed in time", rows=len(outstanding), error=error)
                    return
                await asyncio.sleep(min(third / 5, 1.0))
                continue
            if not settled.changed and outstanding:
                _log.warning("lease lost: its rows are no longer ours", rows=settled.fenced)
                return
            self._since = started
