"""Ticks as BullMQ keeps them: putting them into a queue, and reading from their jobs when and how they were worked."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bullmq import Queue
from redis import Redis

from embedded.errors import PartFailed
from tickkeeper.bullmq.clients import RedisSettings, close, connect

PREFIX = "bull"
QUEUE = "ticks"
JOB_NAME = "drain"
#: Jobs are the record that is read: none may be trimmed before.
_KEEP = {"removeOnComplete": {"count": 1_000_000}, "removeOnFail": {"count": 1_000_000}}
_LOOK = 0.005

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick that is over. Epoch ms: ``due`` (its slot; 0 for one without schedule), ``began``, ``ended``."""

    id: str
    due: int
    began: int
    ended: int
    started: int
    result: dict[str, Any]

    @property
    def done(self) -> int:
        """Rows that it delivered."""
        return int(self.result.get("done", 0))

    @property
    def late_ms(self) -> float:
        """From its due time to when it was taken up."""
        return self.began - self.due


class Ticks:
    """The queue's ticks on one Redis."""

    def __init__(self, url: str, client: Redis) -> None:
        """``client`` answers in text."""
        self._url = url
        self._client: Any = client

    def add(self, tenants: Iterable[str]) -> list[str]:
        """Put one tick for each into the queue; their jobs' ids."""

        async def do(queue: Queue) -> list[str]:
            return [str((await queue.add(JOB_NAME, {"tenantId": tenant}, dict(_KEEP))).id) for tenant in tenants]

        return self._with_queue(do)

    def schedule(self, tenant: str, *, every_ms: int, policy: str = "Forbid", budget_ms: int = 60_000) -> None:
        """Register a scheduler with what the operator would write."""
        stamp: dict[str, Any] = {"cluster": "bench", "namespace": "default", "name": tenant, "uid": "0"}
        stamp |= {
            "generation": 1,
            "concurrencyPolicy": policy,
            "everyMs": every_ms,
            "tick": {"timeBudgetMs": budget_ms},
        }
        data = {"tenantId": tenant, "tickkeeper": stamp}

        async def do(queue: Queue) -> None:
            await queue.upsertJobScheduler(tenant, {"every": every_ms}, JOB_NAME, data, dict(_KEEP))

        self._with_queue(do)

    def unschedule(self, tenant: str) -> None:
        """Take it away again."""

        async def do(queue: Queue) -> None:
            await queue.removeJobScheduler(tenant)

        self._with_queue(do)

    def results(self, ids: Sequence[str], *, seconds: float, alive: Callable[[], None]) -> list[Tick]:
        """Wait until all these are over. Raises PartFailed when one failed; ``alive`` is asked meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            found = [tick for tick in map(self._tick, ids) if tick is not None]
            if len(found) == len(ids):
                return found
            alive()
            if time.monotonic() > deadline:
                raise PartFailed(f"{len(ids) - len(found)} of {len(ids)} ticks were not over within {seconds:g} s")
            time.sleep(_LOOK)

    def over(self) -> list[Tick]:
        """All that are over, in the order of their due times."""
        ids = [*self._client.zrange(f"{PREFIX}:{QUEUE}:completed", 0, -1)]
        ids += self._client.zrange(f"{PREFIX}:{QUEUE}:failed", 0, -1)
        found = [tick for tick in map(self._tick, map(str, ids)) if tick is not None]
        return sorted(found, key=lambda tick: (tick.due, tick.id))

    def _tick(self, job_id: str) -> Tick | None:
        fields = ("processedOn", "finishedOn", "returnvalue", "failedReason", "ats")
        began, ended, value, failed, started = self._client.hmget(f"{PREFIX}:{QUEUE}:{job_id}", fields)
        if failed:
            raise PartFailed(f"tick {job_id} failed: {failed}")
        if not ended:
            return None
        slot = job_id.rpartition(":")[2] if job_id.startswith("repeat:") else "0"
        result = json.loads(value) if value else None
        return Tick(job_id, int(slot), int(began), int(ended), int(started or 1), result or {})

    def _with_queue(self, do: Callable[[Queue], Awaitable[T]]) -> T:
        async def run() -> T:
            client = connect(RedisSettings.model_validate({"url": self._url}))
            try:
                return await do(Queue(QUEUE, {"connection": client, "prefix": PREFIX}))
            finally:
                await close(client)

        return asyncio.run(run())
