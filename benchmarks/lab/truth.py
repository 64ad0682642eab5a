"""Whether schedulers in Redis are what they must be: read with plain commands, apart from the operator's own look."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from benchmarks.lab.schedules import JOB_NAME, PREFIX, Schedule

_CLOCK_SLACK_MS = 5_000
_MINUTE_MS = 60_000
_LISTS = ("wait", "paused", "active")
_ZSETS = ("delayed", "prioritized")


@dataclass(frozen=True, slots=True)
class _Seen:
    schedule: Schedule
    score: str | None
    record: tuple[str | None, ...]


def faults(client: Redis, wanted: Sequence[Schedule]) -> dict[str, str]:
    """What is wrong, by the schedule's name; empty when all is well. Raises redis' exceptions.

    The reads are not one atomic look: a tick that moves meanwhile may seem broken, so whoever counts looks twice.
    """
    queues: dict[str, list[Schedule]] = defaultdict(list)
    for schedule in wanted:
        queues[schedule.queue].append(schedule)
    now = _now_ms(client)
    found: dict[str, str] = {}
    for queue, members in queues.items():
        found |= _queue_faults(client, f"{PREFIX}:{queue}:", members, now)
    return found


def lasting_faults(client: Redis, wanted: Sequence[Schedule]) -> dict[str, str]:
    """The faults that two looks in a row have found."""
    first = faults(client, wanted)
    if not first:
        return {}
    again = faults(client, [schedule for schedule in wanted if schedule.name in first])
    return {name: fault for name, fault in again.items() if name in first}


def _now_ms(client: Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _queue_faults(client: Redis, base: str, members: Sequence[Schedule], now: int) -> dict[str, str]:
    seen = _records(client, base, members)
    jobs = [f"repeat:{each.schedule.id}:{each.score}" for each in seen]
    intact, held = _jobs(client, base, jobs)
    found = {}
    for each, job, whole in zip(seen, jobs, intact, strict=True):
        fault = _fault(each, now) or (None if whole else "its next job's hash is gone")
        fault = fault or (None if job in held else "its next job is in no list")
        if fault is not None:
            found[each.schedule.name] = fault
    return found


def _records(client: Redis, base: str, members: Sequence[Schedule]) -> list[_Seen]:
    pipe = client.pipeline(transaction=False)
    for schedule in members:
        pipe.zscore(f"{base}repeat", schedule.id)
        pipe.hmget(f"{base}repeat:{schedule.id}", "name", "every", "pattern", "data")
    answers = pipe.execute()
    pairs = zip(answers[::2], answers[1::2], strict=True)
    return [
        _Seen(schedule, None if score is None else f"{score:.0f}", tuple(record))
        for schedule, (score, record) in zip(members, pairs, strict=True)
    ]


def _jobs(client: Redis, base: str, jobs: Sequence[str]) -> tuple[list[bool], set[str]]:
    """Which jobs have a whole hash, and all jobs that wait or run."""
    pipe = client.pipeline(transaction=False)
    for job in jobs:
        pipe.hexists(f"{base}{job}", "rjk")
    for name in _ZSETS:
        pipe.zrange(f"{base}{name}", 0, -1)
    for name in _LISTS:
        pipe.lrange(f"{base}{name}", 0, -1)
    answers = pipe.execute()
    held = {job for lot in answers[len(jobs) :] for job in lot}
    return [bool(answer) for answer in answers[: len(jobs)]], held


def _fault(seen: _Seen, now: int) -> str | None:
    name, every, pattern, data = seen.record
    interval = seen.schedule.every_ms
    if seen.score is None:
        return "it is not registered"
    if name != JOB_NAME:
        return f"its hash has the name {name!r}"
    if (every or "0") != str(interval) or bool(pattern) == bool(interval):
        return f"its hash says every {every!r}, pattern {pattern!r}"
    if not _is_ours(_parsed(data), seen.schedule):
        return f"its data are {data!r:.80}"
    if int(seen.score) > now + (interval or _MINUTE_MS) + _CLOCK_SLACK_MS:
        return f"it is due in {int(seen.score) - now} ms"
    return None


def _is_ours(data: Mapping[str, Any], schedule: Schedule) -> bool:
    stamp = data.get("tickkeeper")
    return data.get("tenantId") == schedule.name and isinstance(stamp, dict) and stamp.get("name") == schedule.name


def _parsed(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
