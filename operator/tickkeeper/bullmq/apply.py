"""Carries plans out, through the official ``bullmq`` calls only."""

import structlog
from bullmq import Queue
from bullmq.job_scheduler import JobScheduler
from redis.asyncio import Redis

from tickkeeper.bullmq.cron import repeat_strategy
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.schedules.desired import Cron, Desired, Every
from tickkeeper.schedules.plan import Plan, Step, job_id

_log = structlog.get_logger(__name__)

#: bullmq scans this many slots for a free one before it gives up with -11 (addJobScheduler-11.lua).
_SLOT_SCANS = 32
#: What bullmq sets when nobody did; a queue that has it has not been given a cap of its own.
_LIBRARY_MAX_LEN_EVENTS = 10_000


class ApplyError(Exception):
    """BullMQ refused a call; the message names the scheduler and BullMQ's answer."""


class Applier:
    """Writes to one Redis. Its client's time-outs bound every call."""

    def __init__(self, client: Redis, *, max_len_events: int) -> None:
        self._client = client
        self._max_len_events = max_len_events
        #: plans carried out so far
        self.writes = 0
        self._queues: dict[QueueKey, Queue] = {}

    async def apply(self, desired: Desired, plan: Plan) -> None:
        """Run the plan's steps in order. Raises redis' exceptions and ApplyError; safe to run again."""
        queue = self._queue(QueueKey(desired.place.prefix, desired.place.queue))
        self.writes += 1
        jobs = iter(plan.jobs)
        for step in plan.steps:
            match step:
                case Step.REMOVE:
                    await queue.removeJobScheduler(desired.place.scheduler_id)
                case Step.REMOVE_JOB:
                    await _remove_job(queue, next(jobs))
                case Step.UPSERT:
                    await self._upsert(queue, desired)

    async def cap_events(self, queue: QueueKey, found: int | None) -> None:
        """Set the cap of the queue's events stream (436 KB a queue at the library's default, measured).

        A cap that somebody chose is kept.
        """
        if found is None or (found == _LIBRARY_MAX_LEN_EVENTS != self._max_len_events):
            await self._client.hset(queue.key("meta"), "opts.maxLenEvents", str(self._max_len_events))

    async def _upsert(self, queue: Queue, desired: Desired) -> None:
        try:
            await _upsert(queue, desired)
        except TypeError as error:
            # bullmq's script errors are TypeErrors with a text; -10 and -11 are occupied slots.
            if "already" not in str(error):
                raise ApplyError(f"{desired.place.scheduler_id}: {error}") from error
            await self._clear_slots(queue, desired)
            try:
                await _upsert(queue, desired)
            except TypeError as again:
                raise ApplyError(f"{desired.place.scheduler_id}: {again}") from again

    async def _clear_slots(self, queue: Queue, desired: Desired) -> None:
        """Drop finished jobs that occupy the slots ahead: left by a clock that was ahead, or by retention without
        end (bullmq#3063)."""
        now = _now_ms(await self._client.time())
        slots: list[int] = []
        match desired.schedule:
            case Every(every_ms) as every:
                first = every.next_slot(now)
                slots = [first + index * every_ms for index in range(_SLOT_SCANS + 1)]
            case Cron(pattern, time_zone):
                slots = [slot for slot in [repeat_strategy(now, {"pattern": pattern, "tz": time_zone})] if slot]
        _log.warning("slots_occupied", scheduler_id=desired.place.scheduler_id, first_slot=slots[0])
        for slot in slots:
            await _remove_job(queue, job_id(desired.place.scheduler_id, slot))

    def _queue(self, key: QueueKey) -> Queue:
        queue = self._queues.get(key)
        if queue is None:
            queue = Queue(key.queue, {"connection": self._client, "prefix": key.prefix})
            queue._job_scheduler = JobScheduler(queue, repeat_strategy=repeat_strategy)  # noqa: SLF001 - no public way
            self._queues[key] = queue
        return queue


async def _upsert(queue: Queue, desired: Desired) -> None:
    match desired.schedule:
        case Every(every_ms, offset_ms):
            repeat: dict[str, int | str] = {"every": every_ms, "offset": offset_ms}
        case Cron(pattern, time_zone):
            repeat = {"pattern": pattern, "tz": time_zone}
    await queue.upsertJobScheduler(
        desired.place.scheduler_id, repeat, desired.job_name, dict(desired.data), dict(desired.opts)
    )


async def _remove_job(queue: Queue, id_: str) -> None:
    """What Job.remove does; a job under a lock is a tick in progress and stays."""
    removed = await queue.backend.remove(id_, False)
    if removed != 1:
        _log.info("job_kept", job_id=id_, answer=removed)


def _now_ms(time: tuple[int, int]) -> int:
    return time[0] * 1000 + time[1] // 1000
