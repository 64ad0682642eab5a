"""TickSchedules in masses: what is wanted, and getting it into the API server quickly."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from tickkeeper.api.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION
from tickkeeper.schedules.identity import derive_scheduler_id

NAMESPACE = "default"
PREFIX = "bull"
JOB_NAME = "drain"

_LANES = 32
_BOUND = 30
_MERGE = "application/merge-patch+json"
_load_kubeconfig: Callable[..., Awaitable[None]] = config.load_kube_config  # that module is not typed


@dataclass(frozen=True, slots=True)
class Schedule:
    """One TickSchedule: every ``every_ms``, or each minute where that is 0 (``cron``)."""

    name: str
    queue: str
    every_ms: int

    @property
    def id(self) -> str:
        """The scheduler's id; unique over all queues of a measurement."""
        return derive_scheduler_id(JOB_NAME, self.name)

    @property
    def body(self) -> dict[str, Any]:
        """The resource."""
        spec = {"tenant": self.name, "jobName": JOB_NAME, "queueName": self.queue, "prefix": PREFIX}
        when = {"everyMs": self.every_ms} if self.every_ms else {"cron": {"pattern": "* * * * *"}}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self.name}, "spec": spec | when}


def schedules(count: int, *, queues: int, every_ms: int, name: str = "t") -> list[Schedule]:
    """``count`` schedules over ``queues`` queues."""
    return [Schedule(f"{name}{index}", f"{name}-{index % queues}", every_ms) for index in range(count)]


def queues_of(wanted: Iterable[Schedule]) -> list[str]:
    """The names of their queues."""
    return sorted({schedule.queue for schedule in wanted})


class Resources:
    """The API server's TickSchedules, asked for and changed many at a time. Make one with ``resources``."""

    def __init__(self, api: client.ApiClient) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._lanes = asyncio.Semaphore(_LANES)

    async def create(self, wanted: Sequence[Schedule]) -> None:
        """Create them all."""
        async with asyncio.TaskGroup() as group:
            for schedule in wanted:
                group.create_task(self._create(schedule))

    async def patch(self, name: str, spec: dict[str, Any]) -> int:
        """Merge fields into one spec. Returns the generation that this made."""
        body = await self._answer(
            self._custom.patch_namespaced_custom_object_without_preload_content(
                **_where(), name=name, body={"spec": spec}, _content_type=_MERGE, _request_timeout=_BOUND
            )
        )
        return int(body["metadata"]["generation"])

    async def list(self) -> list[dict[str, Any]]:
        """All of them."""
        call = self._custom.list_namespaced_custom_object_without_preload_content(**_where(), _request_timeout=_BOUND)
        found: list[dict[str, Any]] = (await self._answer(call))["items"]
        return found

    async def _create(self, schedule: Schedule) -> None:
        async with self._lanes:
            await self._answer(
                self._custom.create_namespaced_custom_object_without_preload_content(
                    **_where(), body=schedule.body, _request_timeout=_BOUND
                )
            )

    async def _answer(self, call: Awaitable[Any]) -> Any:
        # Without the package's own reading of answers, which takes longer than the call.
        response = await call
        body = await response.read()
        if response.status >= 300:
            raise ApiException(status=response.status, reason=body.decode(errors="replace")[:500])
        return json.loads(body)


@asynccontextmanager
async def resources(kubeconfig: Path) -> AsyncIterator[Resources]:
    """The API server of a kubeconfig file."""
    settings = client.Configuration()
    await _load_kubeconfig(config_file=str(kubeconfig), client_configuration=settings)
    settings.connection_pool_maxsize = _LANES
    async with client.ApiClient(settings) as api:
        yield Resources(api)


def create(kubeconfig: Path, wanted: Sequence[Schedule]) -> float:
    """Create them all; the seconds it took."""

    async def act() -> None:
        async with resources(kubeconfig) as server:
            await server.create(wanted)

    started = time.monotonic()
    asyncio.run(act())
    return time.monotonic() - started


def _where() -> dict[str, Any]:
    return {"group": GROUP, "version": VERSION, "namespace": NAMESPACE, "plural": PLURAL}
