"""Reads schedulers in batches: what is in Redis, as the core's ``Observed``."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from bullmq.job import optsFromJSON
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from tickkeeper.api.tick import Stamp
from tickkeeper.bullmq.keys import QueueKey
from tickkeeper.schedules.checks import CLOCK_SLACK_MS, OVERDUE_MIN_MS, latest_sane_score, next_slot
from tickkeeper.schedules.desired import Cron, Desired, Every, Owner, ResourceKey
from tickkeeper.schedules.observed import JobAt, Observed, QueueFacts, Record

#: Schedulers in one script call: 500 held Redis for 5 to 6 ms (measured).
BATCH = 200
#: So many of one look that are registered and not healthy, and the queue's next looks take two calls: each of those
#: takes ten times as long as a healthy one, and 200 of them hold Redis for 3 to 6 ms (measured).
_MANY = BATCH // 4

_FAR_FUTURE = 2**53

_SCRIPT = files("tickkeeper.bullmq").joinpath("observe.lua").read_text()
_KEYS = (
    *("repeat", "delayed", "prioritized", "wait", "paused", "active", "meta", "completed", "failed", "limiter"),
    # Only their types are looked at: of another one, every write of BullMQ's and every worker fails at them.
    *("marker", "stalled", "events", "id"),
)
_FIELDS = ("name", "every", "offset", "pattern", "tz", "limit", "startDate", "endDate", "data", "opts", "ic")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A scheduler to look at: ``digest`` of its hash when last verified (None returns it whatever it looks like), and
    whether to hear of its due time though it is healthy."""

    desired: Desired
    digest: str | None = None
    watched: bool = False
    #: the script's argument, which stays the same with every look at an ``every``
    _text: str = field(init=False, default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.desired.schedule, Every):
            object.__setattr__(self, "_text", self._argument(0))

    def argument(self, now: int) -> str:
        """It as the script's argument (JSON); ``now``: epoch ms."""
        return self._text or self._argument(now)

    def _argument(self, now: int) -> str:
        place = self.desired.place
        values = (place.scheduler_id, self.digest or "", *_bounds(self.desired, now), int(self.watched))
        return json.dumps(values, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Sight:
    """One scheduler that is worth a word, and the digest of its hash for the next look."""

    observed: Observed
    digest: str | None
    #: plainly so, by the script's own judgement: only its due time and iterations were read
    healthy: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """One batch: Redis' time (epoch ms) and what was worth saying, by scheduler id. Absent means healthy."""

    now: int
    sights: Mapping[str, Sight] = field(default_factory=dict)
    #: the cap of the queue's events stream, None where it has none yet
    max_len_events: int | None = None


class Observer:
    """Looks at one Redis."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        #: script calls so far
        self.looks = 0
        #: queues in which many are late, or otherwise worth many words
        self._slow: set[QueueKey] = set()
        self._sha = ""
        self._read_only = True

    async def look(self, queue: QueueKey, wanted: Sequence[Wanted], *, now: int) -> Look:
        """One look at up to BATCH schedulers of one queue, atomic for each of them.

        ``now`` (epoch ms) is the caller's notion of Redis' time, for cron. Raises redis' exceptions.
        """
        assert len(wanted) <= BATCH
        size = BATCH // 2 if queue in self._slow else BATCH
        parts = [wanted[start : start + size] for start in range(0, len(wanted), size)]
        looks = [await self._look(queue, part, now=now) for part in parts]
        sights = {where: sight for look in looks for where, sight in look.sights.items()}
        slow = sum(not sight.healthy and sight.observed.score is not None for sight in sights.values()) > _MANY
        (self._slow.add if slow else self._slow.discard)(queue)
        return looks[0] if len(looks) == 1 else replace(looks[-1], sights=sights)

    async def _look(self, queue: QueueKey, wanted: Sequence[Wanted], *, now: int) -> Look:
        schedulers = f"[{','.join([one.argument(now) for one in wanted])}]"
        arguments: list[str | int] = [queue.base, OVERDUE_MIN_MS, CLOCK_SLACK_MS, schedulers]
        keys = [queue.key(name) for name in _KEYS]
        self.looks += 1
        redis_now, facts, found = await self._run(keys, arguments)
        queue_facts = _queue_facts(facts)
        sights = {}
        for entry in found:
            one = wanted[entry[0] - 1]
            sights[one.desired.place.scheduler_id] = _sight(entry, redis_now, queue_facts, one)
        return Look(redis_now, sights, _int(facts[4]))

    async def _run(self, keys: list[str], arguments: list[str | int]) -> Any:
        if self._sha:
            try:
                return await self._evalsha(keys, arguments)
            except NoScriptError:
                pass  # restarted, or SCRIPT FLUSH
        self._sha = await self._client.script_load(_SCRIPT)
        return await self._evalsha(keys, arguments)

    async def _evalsha(self, keys: list[str], arguments: list[str | int]) -> Any:
        if self._read_only:
            try:
                return await self._client.evalsha_ro(self._sha, len(keys), *keys, *arguments)
            except ResponseError as error:
                if "unknown command" not in str(error).lower():
                    raise
                self._read_only = False  # Redis < 7
        return await self._client.evalsha(self._sha, len(keys), *keys, *arguments)


def _bounds(desired: Desired, now: int) -> tuple[int, int, int]:
    match desired.schedule:
        case Every(every_ms, offset_ms):
            return every_ms, offset_ms, 0
        case Cron():
            return 0, next_slot(desired, now), latest_sane_score(desired, now)


def _queue_facts(facts: Sequence[Any]) -> QueueFacts:
    paused, concurrency, active, limited, _ = facts
    limit = _int(concurrency)
    return QueueFacts(paused=bool(paused), maxed=limit is not None and active >= limit, rate_limited=bool(limited))


def _sight(entry: Sequence[Any], now: int, queue: QueueFacts, wanted: Wanted) -> Sight:
    match len(entry):
        case 2:
            return Sight(Observed(now=now, leftover_job=entry[1] or None, queue=queue), None)
        case 3:
            return _short(entry, now, wanted)
    _, score, fields, digest, place, whole, leftover, wrong = entry
    observed = Observed(
        now=now,
        score=_score(score),
        record=_hash(fields, wanted) if fields is not None else None,
        job=JobAt(place),
        job_intact=bool(whole),
        leftover_job=leftover or None,
        wrong_type=wrong or None,
        queue=queue,
    )
    return Sight(observed, digest or None)


def _short(entry: Sequence[Any], now: int, wanted: Wanted) -> Sight:
    _, score, iterations = entry
    record = Record(name=wanted.desired.job_name, iterations=_int(iterations) or 0)
    return Sight(Observed(now=now, score=_score(score), record=record), wanted.digest, healthy=True)


def _score(text: str | None) -> int | None:
    """A zset score as epoch ms; one that is not finite counts as the far future, which no honest clock writes."""
    if not text:
        return None
    value = float(text)
    return int(value) if math.isfinite(value) else _FAR_FUTURE


def _hash(fields: Sequence[str | None], wanted: Wanted) -> Record:
    if len(fields) == len(_FIELDS):
        return _record(dict(zip(_FIELDS, fields, strict=True)))
    # Its digest is that of the hash last verified: when ten thousand are overdue, reading each anew takes a core.
    desired = wanted.desired
    schedule = desired.schedule
    every, cron = (schedule, None) if isinstance(schedule, Every) else (None, schedule)
    return Record(
        name=desired.job_name,
        every=str(every.every_ms) if every else None,
        offset=str(every.offset_ms) if every else None,
        pattern=cron.pattern if cron else None,
        tz=cron.time_zone if cron else None,
        data=desired.data,
        opts=desired.opts,
        iterations=_int(fields[0]) or 0 if fields else 0,
        owner=desired.owner,
    )


def _record(fields: Mapping[str, str | None]) -> Record:
    data = _json(fields["data"])
    opts = _json(fields["opts"])
    return Record(
        name=fields["name"],
        every=fields["every"],
        offset=fields["offset"],
        pattern=fields["pattern"],
        tz=fields["tz"],
        bounds={name: value for name in ("limit", "startDate", "endDate") if (value := fields[name]) is not None},
        data=data,
        opts=optsFromJSON(opts) if isinstance(opts, dict) else None,
        iterations=_int(fields["ic"]) or 0,
        owner=_owner(data),
    )


def stamp_of(data: str) -> Stamp | None:
    """The ownership stamp in a scheduler's data (JSON text), None where there is none that can be read."""
    return _stamp(_json(data))


def _stamp(data: Any) -> Stamp | None:
    found = data.get("tickkeeper") if isinstance(data, dict) else None
    if found is None:
        return None
    try:
        return Stamp.model_validate(found)
    except ValueError:
        return None  # not of our making, or spoilt: the difference in data will say so


def _owner(data: Any) -> Owner | None:
    stamp = _stamp(data)
    if stamp is None:
        return None
    return Owner(stamp.cluster, ResourceKey(stamp.namespace, stamp.name), stamp.uid, stamp.generation)


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):  # nested by the thousand, it is nobody's schedule
        return None


def _int(text: str | int | None) -> int | None:
    try:
        return int(text) if text not in (None, False, "") else None
    except ValueError:
        return None
