# ruff: noqa: INP001 - run as a script
"""`helm test`: a TickSchedule is made and ticks; its scheduler is removed from Redis; it ticks again by itself."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from bullmq import Queue, Worker
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from tickkeeper.bullmq.clients import RedisSettings, Use, connect

RESOURCE: dict[str, Any] = {"group": "tickkeeper.dev", "version": "v1alpha1", "plural": "tickschedules"}
NAMESPACE = os.environ["TEST_NAMESPACE"]
PREFIX = os.environ.get("TEST_PREFIX", "bull")
EVERY_MS = 1000
STARTED = time.monotonic()


def say(line: str) -> None:
    print(f"{time.monotonic() - STARTED:6.1f} s  {line}", flush=True)


def redis_settings() -> RedisSettings:
    def read(variable: str) -> str | None:
        path = os.environ.get(variable)
        return Path(path).read_text() if path else None

    return RedisSettings(
        url=os.environ["TICKKEEPER_REDIS_URL"],
        username=os.environ.get("TICKKEEPER_REDIS_USERNAME") or None,
        password=os.environ.get("TICKKEEPER_REDIS_PASSWORD") or None,
        ca_cert=read("TICKKEEPER_REDIS_CA_FILE"),
        client_cert=read("TICKKEEPER_REDIS_CERT_FILE"),
        client_key=read("TICKKEEPER_REDIS_KEY_FILE"),
    )


class Schedule:
    """The TickSchedule of this test, on a queue of its own, so that no worker of yours sees its ticks."""

    def __init__(self, api: client.CustomObjectsApi) -> None:
        self.api = api
        self.name = f"tickkeeper-test-{uuid4().hex[:8]}"
        self.queue = self.name

    async def create(self) -> None:
        spec = {"tenant": "tickkeeper-test", "jobName": "test", "everyMs": EVERY_MS} | {
            "queueName": self.queue,
            "prefix": PREFIX,
        }
        body = {"apiVersion": "tickkeeper.dev/v1alpha1", "kind": "TickSchedule"}
        await self.api.create_namespaced_custom_object(
            **RESOURCE, namespace=NAMESPACE, body=body | {"metadata": {"name": self.name}, "spec": spec}
        )

    async def status(self) -> dict[str, Any]:
        found: Any = await self.api.get_namespaced_custom_object(**RESOURCE, namespace=NAMESPACE, name=self.name)
        return found.get("status") or {}

    async def delete(self) -> None:
        with suppress(ApiException):
            await self.api.delete_namespaced_custom_object(**RESOURCE, namespace=NAMESPACE, name=self.name)

    async def gone(self) -> bool:
        try:
            await self.status()
        except ApiException as error:
            return bool(error.status == 404)
        return False


async def until(what: str, condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Wait for a condition. Exits when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"FAILED: waited {seconds:.0f} s for: {what}")
        await asyncio.sleep(0.1)
    say(what)


async def try_ticking(schedule: Schedule, redis: RedisSettings) -> None:
    ticks: list[str] = []

    async def work(job: Any, _token: str) -> None:
        ticks.append(job.data["tenantId"])

    await schedule.create()
    say(f"TickSchedule {NAMESPACE}/{schedule.name} created")
    worker = Worker(schedule.queue, work, {"connection": connect(redis, use=Use.BLOCKING), "prefix": PREFIX})
    queue = Queue(schedule.queue, {"connection": connect(redis), "prefix": PREFIX})
    try:
        seen = 0

        async def registered() -> bool:
            return "registered" in await schedule.status()

        async def two_more() -> bool:
            return len(ticks) >= seen + 2

        async def healed() -> bool:
            return int((await schedule.status()).get("heals", 0)) > 0

        await until("its scheduler is registered in Redis", registered, 45)
        await until("it ticks", two_more, 30)
        assert set(ticks) == {"tickkeeper-test"}, f"ticks carry another tenant: {set(ticks)}"
        scheduler = (await schedule.status())["registered"]["schedulerId"]
        missing = await queue.removeJobScheduler(scheduler)
        assert missing == 0, f"the scheduler {scheduler} was not there to be removed"
        seen = len(ticks)
        say("the scheduler was removed from Redis, behind the operator's back")
        await until("it ticks again", two_more, 30)
        await until("status.heals counts it", healed, 15)
    finally:
        await schedule.delete()
        await worker.close(force=True)
    await until("the TickSchedule is deleted", schedule.gone, 90)
    assert await queue.client.zcard(f"{PREFIX}:{schedule.queue}:repeat") == 0, "a scheduler is left in Redis"
    await queue.obliterate(force=True)
    await queue.close()


async def main() -> None:
    config.load_incluster_config()  # type: ignore[no-untyped-call]
    redis = redis_settings()
    async with client.ApiClient() as connection:
        schedule = Schedule(client.CustomObjectsApi(connection))
        try:
            await try_ticking(schedule, redis)
        except SystemExit:
            with suppress(ApiException):
                print(json.dumps(await schedule.status(), indent=2), file=sys.stderr)
            raise
    say("passed")


asyncio.run(main())
