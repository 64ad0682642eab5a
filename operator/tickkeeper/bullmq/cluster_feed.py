"""The change feed of a Redis Cluster: one feed for each node that holds a queue that is followed."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

import structlog
from redis.asyncio import RedisCluster

from tickkeeper.bullmq.cancellation import raise_if_cancelled
from tickkeeper.bullmq.clients import Bounds, RedisSettings, close, connect
from tickkeeper.bullmq.errors import REDIS_ERRORS, explain
from tickkeeper.bullmq.feed import Feed
from tickkeeper.bullmq.keys import QueueKey

_log = structlog.get_logger(__name__)

#: Seconds between two looks at who holds what; at once when a node broke or a slot moved, and for a while after that
#: more often: a slot that is on its way is its old node's until the move is over.
_REFRESH = 10.0
_UNSETTLED_REFRESH = 0.5
_UNSETTLED = 20.0
_RETRY = 0.2

Node = tuple[str, int]


class ClusterFeed:
    """Follows queues wherever their slots are; the same calls as ``Feed``."""

    def __init__(
        self,
        settings: RedisSettings,
        *,
        on_loss: Callable[[QueueKey], None],
        expected: Callable[[QueueKey], int],
        on_break: Callable[[], None],
        bounds: Bounds | None = None,
    ) -> None:
        self._settings = settings
        self._on_loss = on_loss
        self._expected = expected
        self._on_break = on_break
        self._bounds = bounds
        self._queues: frozenset[QueueKey] = frozenset()
        self._feeds: dict[Node, tuple[Feed, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        #: until when a move may be under way (monotonic seconds)
        self._unsettled_until = 0.0

    @property
    def tracking(self) -> bool | None:
        """Whether every node pushes changes; None before they have been asked."""
        answers = [feed.tracking for feed, _ in self._feeds.values()]
        return None if not answers or None in answers else all(answers)

    @property
    def reads(self) -> int:
        """Counts read so far by the feeds that run."""
        return sum(feed.reads for feed, _ in self._feeds.values())

    def watch(self, queues: Iterable[QueueKey]) -> None:
        """Follow these queues from now on, and no others."""
        self._queues = frozenset(queues)
        self._changed.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        client = connect(self._settings, name="tickkeeper-feed", bounds=self._bounds)
        try:
            while True:
                raise_if_cancelled()
                self._changed.clear()
                pause = _REFRESH if time.monotonic() > self._unsettled_until else _UNSETTLED_REFRESH
                try:
                    self._spread(await self._holders(cast(RedisCluster, client)))
                except REDIS_ERRORS as error:
                    _log.debug("cluster_unknown", redis=str(self._settings.address), error=explain(error))
                    pause = _RETRY
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
        finally:
            for _, task in self._feeds.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._feeds.values()), return_exceptions=True)
            await close(client)

    async def _holders(self, client: RedisCluster) -> dict[Node, list[QueueKey]]:
        """Which node holds which queue now. Asks the cluster anew each time."""
        await client.initialize()
        await client.nodes_manager.initialize()
        holders: dict[Node, list[QueueKey]] = defaultdict(list)
        for queue in self._queues:
            node = client.nodes_manager.get_node_from_slot(client.keyslot(queue.key("repeat")))
            holders[(str(node.host), int(node.port))].append(queue)
        return holders

    def _spread(self, holders: dict[Node, list[QueueKey]]) -> None:
        for node in self._feeds.keys() - holders.keys():
            _, task = self._feeds.pop(node)
            task.cancel()
        for node, queues in holders.items():
            if node not in self._feeds:
                feed = Feed(
                    self._settings.of_node(*node),
                    on_loss=self._on_loss,
                    expected=self._expected,
                    on_break=self._broke,
                    bounds=self._bounds,
                )
                self._feeds[node] = (feed, asyncio.create_task(feed.run(), name=f"feed {node[0]}:{node[1]}"))
            self._feeds[node][0].watch(queues)

    def _broke(self) -> None:
        self._unsettled_until = time.monotonic() + _UNSETTLED
        self._changed.set()
        self._on_break()
