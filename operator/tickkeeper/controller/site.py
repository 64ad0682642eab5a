"""One Redis and the schedulers in its charge: look, plan, apply, look again, report; for ever.

All writes to one Redis happen in its one loop, so that a deletion never races an update of the same scheduler.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

import structlog

from tickkeeper.bullmq.apply import Applier
from tickkeeper.bullmq.cancellation import raise_if_cancelled
from tickkeeper.bullmq.clients import Bounds, RedisSettings, close, connect
from tickkeeper.bullmq.cluster_feed import ClusterFeed
from tickkeeper.bullmq.errors import REDIS_ERRORS, explain, is_access_error, is_refused
from tickkeeper.bullmq.feed import Feed
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.bullmq.observe import Observer
from tickkeeper.controller.charge import Charge, Found, Intent, Outcome, Unreachable
from tickkeeper.controller.inspection import Inspection, Urgent

_log = structlog.get_logger(__name__)

#: Seconds in which several wakes become one pass.
_COALESCE = 0.001
#: Seconds between two tries to reach a Redis that is away: constant, so that its return is noticed at once.
_RETRY = 0.2
#: The same where the try costs next to nothing: nobody listens there yet.
_RETRY_REFUSED = 0.05
#: Seconds between two reports of one and the same outage, with ten thousand schedules each.
_REPEAT_REPORT = 1.0

#: Called after each pass: scope, its seconds, seconds since the fault was noticed, how many were mended.
Timed = Callable[[str, float, float, int], None]
Report = Callable[[Sequence[tuple[Charge, Outcome]]], None]


class Site:
    """One Redis. ``report`` is called with what each pass came to, from within the loop."""

    def __init__(
        self,
        settings: RedisSettings,
        *,
        report: Report,
        sweep_seconds: float,
        max_len_events: int,
        may_write: Callable[[], bool] = lambda: True,
        timed: Timed = lambda _scope, _seconds, _latency, _mended: None,
        bounds: Bounds | None = None,
    ) -> None:
        self.settings = settings
        self.name = str(settings.address)
        self._report = report
        self._timed = timed
        self._sweep_seconds = sweep_seconds
        self.client = connect(settings, name="tickkeeper-operator", bounds=bounds)
        self._inspection = Inspection(
            self.client, Observer(self.client), Applier(self.client, max_len_events=max_len_events), may_write
        )
        self._charges: set[Charge] = set()
        self._queues: dict[QueueKey, set[Charge]] = {}
        #: queues that ever held a charge of this process: they may hold what is left of it
        self.queues_seen: set[QueueKey] = set()
        self._in_place: Counter[QueueKey] = Counter()
        self._urgent: set[Charge] = set()
        feed = ClusterFeed if settings.address.mode == "cluster" else Feed
        self.feed = feed(
            settings,
            on_loss=self._on_loss,
            expected=self._in_place.__getitem__,
            on_break=self._on_break,
            bounds=bounds,
        )
        self._wake = asyncio.Event()
        #: the feed's connection is back, so that a try is worth its while
        self._back = asyncio.Event()
        self._outage: Unreachable | None = None
        self._outage_told_at = 0.0
        self._next_sweep = 0.0
        self.up: bool | None = None
        self.last_beat = time.monotonic()
        #: when everything was last checked (epoch seconds)
        self.swept_at: float | None = None
        #: when a fault was noticed that no pass has seen to yet (monotonic seconds)
        self._noticed: float | None = None

    @property
    def charges(self) -> frozenset[Charge]:
        """The schedulers it looks after."""
        return frozenset(self._charges)

    def calls(self) -> dict[str, int]:
        """What was asked of this Redis so far, by kind."""
        return {**self._inspection.calls(), "count": self.feed.reads}

    def take(self, charge: Charge) -> None:
        """Look after a scheduler, beginning now."""
        self._charges.add(charge)
        self.queues_seen.add(charge.queue)
        if charge.queue not in self._queues:
            self._queues[charge.queue] = set()
            self.feed.watch(self._queues)
        self._queues[charge.queue].add(charge)
        self.look_soon(charge)

    def drop(self, charge: Charge) -> None:
        """Look after it no longer; it stays as it is."""
        if charge not in self._charges:
            return
        self._mark(charge, in_place=False)
        self._charges.discard(charge)
        self._urgent.discard(charge)
        self._queues[charge.queue].discard(charge)
        if not self._queues[charge.queue]:
            del self._queues[charge.queue]
            self.feed.watch(self._queues)

    def look_soon(self, charge: Charge) -> None:
        """Look at one scheduler before the next sweep."""
        if charge in self._charges:
            self._urgent.add(charge)
            self._wake.set()

    async def run(self) -> None:
        """Look after the charges until cancelled."""
        try:
            # A fault of the feed ends the site, and so the process: half a site would look whole.
            async with asyncio.TaskGroup() as group:
                group.create_task(self.feed.run(), name=f"feed {self.name}")
                while True:
                    raise_if_cancelled()
                    await self._wait()
                    raise_if_cancelled()
                    await self._turn()
        finally:
            await close(self.client)

    def _mark(self, charge: Charge, *, in_place: bool) -> None:
        self._in_place[charge.queue] += in_place - charge.in_place
        charge.in_place = in_place

    def _on_break(self) -> None:
        """The feed's connection broke or came back: whatever was there may be gone."""
        self._next_sweep = 0.0
        self._back.set()
        self._notice()

    def _on_loss(self, queue: QueueKey) -> None:
        """A queue lost a scheduler: find out which."""
        self._urgent.update(self._queues.get(queue, ()))
        self._notice()

    def _notice(self) -> None:
        self._noticed = self._noticed or time.monotonic()
        self._wake.set()

    async def _wait(self) -> None:
        remaining = self._next_sweep - time.monotonic()
        if not self._wake.is_set() and remaining > 0:
            try:
                async with asyncio.timeout(min(remaining, 1.0)):
                    await self._wake.wait()
            except TimeoutError:
                return
        if self._wake.is_set():
            await asyncio.sleep(_COALESCE)
        self._wake.clear()

    async def _turn(self) -> None:
        self.last_beat = time.monotonic()
        sweep = self.last_beat >= self._next_sweep
        urgent, self._urgent = self._urgent, set()
        if not urgent and not sweep:
            return

        def news(mended: AbstractSet[Charge]) -> AbstractSet[Charge]:
            # A queue that is being filled lacks some with every count of the feed: what the pass has mended waits.
            new = self._urgent - mended
            self._urgent &= mended
            urgent.update(new)
            return new

        self._back.clear()
        try:
            await self._pass(tuple(self._charges if sweep else urgent), news, sweep=sweep)
        except REDIS_ERRORS as error:
            self._went_away(error, urgent)
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_REFUSED if is_refused(error) else _RETRY):
                    await self._back.wait()
            # Everything is looked at again as soon as it answers.
            self._next_sweep = 0.0

    async def _pass(self, charges: Sequence[Charge], news: Urgent, *, sweep: bool) -> None:
        started = time.monotonic()
        if sweep:
            await self._inspection.probe()
        found: list[tuple[Charge, Found]] = []
        async for charge, outcome in self._inspection.inspect(charges, urgent=news):
            if charge in self._charges:
                self._mark(charge, in_place=outcome.in_place and charge.intent is Intent.KEEP)
                found.append((charge, outcome))
        if self.up is not True:
            _log.info("redis_up", redis=self.name)
            self.up = True
        self._outage = None
        ended = time.monotonic()
        if sweep:
            self.swept_at = time.time()
            self._next_sweep = ended + self._sweep_seconds * random.uniform(0.9, 1.1)  # noqa: S311
        mended = sum(outcome.mended for _, outcome in found)
        latency = ended - (self._noticed or started)
        self._noticed = None
        self._timed("sweep" if sweep else "part", ended - started, latency, mended)
        self._report(found)

    def _went_away(self, error: BaseException, urgent: AbstractSet[Charge]) -> None:
        outcome = Unreachable(explain(error), access=is_access_error(error))
        if self.up is not False:
            _log.warning("redis_away", redis=self.name, error=outcome.message)
            self.up = False
        charges: AbstractSet[Charge] = self._charges
        if outcome == self._outage and time.monotonic() - self._outage_told_at < _REPEAT_REPORT:
            charges = urgent & self._charges  # what is new; of the others it is known
        else:
            self._outage, self._outage_told_at = outcome, time.monotonic()
        self._report([(charge, outcome) for charge in charges])
