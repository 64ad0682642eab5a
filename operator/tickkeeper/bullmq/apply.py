"""Carries plans out, through the official ``bullmq`` calls only."""

import structlog
from bullmq import Queue
from bullmq.backend import Backend
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
        # One backend for all queues: each Queue of its own would hold 300 KB of scripts (measured).
        self._backend = Queue("tickkeeper", {"connection": client}).backend
        self._schedulers: dict[QueueKey, JobScheduler] = {}

    async def apply(self, desired: Desired, plan: Plan) -> None:
        """Run the plan's steps in order. Raises redis' exceptions and ApplyError; safe to run again."""
        scheduler = self._scheduler(QueueKey(desired.place.prefix, desired.place.queue))
        self.writes += 1
        jobs = iter(plan.jobs)
        for step in plan.steps:
            match step:
                case Step.REMOVE:
                    await scheduler.removeJobScheduler(desired.place.scheduler_id)
                case Step.REMOVE_JOB:
                    await _remove_job(scheduler, next(jobs))
                case Step.UPSERT:
                    await self._upsert(scheduler, desired)

    async def cap_events(self, queue: QueueKey, found: int | None) -> None:
        """Set the cap of the queue's events stream (436 KB a queue at the library's default, measured).

        A cap that somebody chose is kept.
        """
        if found is None or (found == _LIBRARY_MAX_LEN_EVENTS != self._max_len_events):
            await self._client.hset(queue.key("meta"), "opts.maxLenEvents", str(self._max_len_events))

    async def _upsert(self, scheduler: JobScheduler, desired: Desired) -> None:
        try:
            await _upsert(scheduler, desired)
        except TypeError as error:
            # bullmq's script errors are TypeErrors with a text; -10 and -11 are occupied slots.
            if "already" not in str(error):
                raise ApplyError(f"{desired.place.scheduler_id}: {error}") from error
            await self._clear_slots(scheduler, desired)
            try:
                await _upsert(scheduler, desired)
            except TypeError as again:
                raise ApplyError(f"{desired.place.scheduler_id}: {again}") from again

    async def _clear_slots(self, scheduler: JobScheduler, desired: Desired) -> None:
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
            await _remove_job(scheduler, job_id(desired.place.scheduler_id, slot))

    def _scheduler(self, key: QueueKey) -> JobScheduler:
        scheduler = self._schedulers.get(key)
        if scheduler is None:
            view = _QueueView(self._backend.forQueue(key.queue, key.prefix))
            scheduler = self._schedulers[key] = JobScheduler(view, repeat_strategy=repeat_strategy)
        return scheduler


class _QueueView:
    """What a JobScheduler wants of its queue."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.qualifiedName = backend.qualifiedName  # bullmq's spelling


async def _upsert(scheduler: JobScheduler, desired: Desired) -> None:
    match desired.schedule:
        case Every(every_ms, offset_ms):
            repeat: dict[str, int | str] = {"every": every_ms, "offset": offset_ms}
        case Cron(pattern, time_zone):
            repeat = {"pattern": pattern, "tz": time_zone}
    await scheduler.upsertJobScheduler(
        desired.place.scheduler_id, repeat, desired.job_name, dict(desired.data), dict(desired.opts)
    )


async def _remove_job(scheduler: JobScheduler, id_: str) -> None:
    """What Job.remove does; a job under a lock is a tick in progress and stays."""
    removed = await scheduler.backend.remove(id_, False)
    if removed != 1:
        _log.info("job_kept", job_id=id_, answer=removed)


def _now_ms(time: tuple[int, int]) -> int:
    return time[0] * 1000 + time[1] // 1000
