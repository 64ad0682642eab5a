"""Edits one after another, a hundred each second: the last one wins, and none is left behind."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.keeper.sizes import Sizes
from benchmarks.lab.figures import median
from benchmarks.lab.progress import say
from benchmarks.lab.schedules import PREFIX, Resources, Schedule, resources
from benchmarks.lab.stage import Stage

_BACKLOG_SECONDS = 5.0
_PATIENCE = 60.0
_LOOK = 0.02


@dataclass(slots=True)
class _Sent:
    """What was asked for last, by the schedule's name: its value and the generation that it made."""

    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    edits: int = 0
    seconds: float = 0.0


def measure_edits(stage: Stage, sizes: Sizes, members: Sequence[Schedule]) -> Row:
    """Edit the same schedules in turn, at a steady rate; then see how long until Redis and statuses tell the last."""
    row = Row("edits")
    rates, registered, told, raw = [], [], [], []
    for run in range(sizes.runs):
        say(f"edits, run {run + 1} of {sizes.runs}: {sizes.edits_a_second} a second for {sizes.edits:g} s")
        sent, redis_seconds, status_seconds = asyncio.run(_run(stage, sizes, members))
        rates.append(sent.edits / sent.seconds)
        registered.append(redis_seconds)
        told.append(status_seconds)
        raw.append({"edits": sent.edits, "seconds": sent.seconds, "redis_s": redis_seconds, "status_s": status_seconds})
        asyncio.run(_restore(stage, members))
        stage.settle()
    row.raw["runs"] = raw
    row.figures += [
        Figure(f"edits of {len(members)} schedules that were sent", "/s", rates),
        Figure("last edit -> every scheduler has its own last one", "s", registered),
        Figure("last edit -> every status has observed its own last one", "s", told),
    ]
    row.at_most("edits-registered", median(registered), "s", _BACKLOG_SECONDS)
    row.at_most("edits-told", median(told), "s", _BACKLOG_SECONDS)
    return row


async def _run(stage: Stage, sizes: Sizes, members: Sequence[Schedule]) -> tuple[_Sent, float, float]:
    async with resources(stage.kube.kubeconfig) as server:
        sent = await _send(server, sizes, members)
        finished = time.monotonic()
        redis_seconds = await _until(lambda: _registered(stage, sent), finished)
        status_seconds = await _until(lambda: _told(server, sent), finished)
    return sent, redis_seconds, status_seconds


async def _send(server: Resources, sizes: Sizes, members: Sequence[Schedule]) -> _Sent:
    """Each edit at its time, whether the ones before are answered or not; never two of one schedule at once."""
    sent = _Sent()
    locks = {schedule.name: asyncio.Lock() for schedule in members}

    async def edit(schedule: Schedule, value: int) -> None:
        async with locks[schedule.name]:
            spec = {"everyMs": 600_000 + value % 1000, "data": {"edit": str(value)}}
            sent.last[schedule.name] = (value, await server.patch(schedule.name, spec))

    total = int(sizes.edits * sizes.edits_a_second)
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for index in range(total):
            await asyncio.sleep(started + index / sizes.edits_a_second - time.monotonic())
            group.create_task(edit(members[index % len(members)], index))
    sent.edits, sent.seconds = total, time.monotonic() - started
    return sent


async def _restore(stage: Stage, members: Sequence[Schedule]) -> None:
    async with resources(stage.kube.kubeconfig) as server:
        for schedule in members:
            await server.patch(schedule.name, {"everyMs": schedule.every_ms, "data": None})


async def _until(condition: Any, since: float) -> float:
    """Seconds from ``since`` until it holds; infinite when it does not in time."""
    while not await condition():
        if time.monotonic() - since > _PATIENCE:
            return float("inf")
        await asyncio.sleep(_LOOK)
    return time.monotonic() - since


async def _registered(stage: Stage, sent: _Sent) -> bool:
    by_name = {schedule.name: schedule for schedule in stage.wanted}
    pipe = stage.client.pipeline(transaction=False)
    for name in sent.last:
        pipe.hmget(f"{PREFIX}:{by_name[name].queue}:repeat:{by_name[name].id}", "every", "data")
    return all(
        every == str(600_000 + value % 1000) and json.loads(data or "{}").get("edit") == str(value)
        for (every, data), (value, _) in zip(pipe.execute(), sent.last.values(), strict=True)
    )


async def _told(server: Resources, sent: _Sent) -> bool:
    observed = {
        body["metadata"]["name"]: body.get("status", {}).get("observedGeneration", 0) for body in await server.list()
    }
    return all(observed[name] >= generation for name, (_, generation) in sent.last.items())
