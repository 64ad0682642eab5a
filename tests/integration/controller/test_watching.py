"""The API server between two watches: lists that fail, connections that stay open and say nothing.

An operator of each test alone, through a proxy.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import kopf
import pytest

from embedded.proxy import Proxy
from embedded.redis import Redis as RedisServer
from tests.integration.controller.api_proxy import ApiProxy
from tests.integration.controller.conftest import Alone
from tests.integration.controller.operator_process import Operator
from tests.integration.controller.scene import HOUR, Cluster, Scene
from tickkeeper.controller import handlers

LISTS = r"^GET /apis/tickkeeper\.dev/v1alpha1/.*tickschedules(\?(?!.*watch=true).*)?$"


@pytest.mark.parametrize("namespaces", ["named", "all"])
def test_d6_lists_that_answer_500_at_the_start_are_asked_again(
    alone: Alone, cluster: Cluster, tmp_path: Path, namespaces: str
) -> None:
    with ApiProxy(cluster.server, tmp_path) as proxy:
        settings = {} if namespaces == "named" else {"NAMESPACES": ""}
        scene = alone(start=False, KUBECONFIG=str(proxy.kubeconfig), CLUSTER_ID="mine", **settings)
        scene.create()
        with proxy.answering(500, to=LISTS):
            scene.operator.start(synced=False)
            scene.operator.wait_for(lambda: len(proxy.requests(LISTS, status=500)) >= 5)
            assert scene.operator.running
        scene.until_condition("Ready", "True", seconds=40)
        # It was not the list alone that showed it: what changes now is seen as well.
        scene.operator.wait_for(lambda: proxy.requests("watch=true.*", status=200))
        scene.patch(everyMs=60_000, offsetMs=5)
        scene.until_condition("Ready", "True", seconds=40)


@pytest.fixture
def scene_without_operator(cluster: Cluster, namespace: str) -> Scene:
    """Resources only."""
    return Scene(cluster, namespace, cast("RedisServer", None), cast("Operator", None))


class Watched:
    """What kopf's handlers want of a keeper: remembers the intervals that it was told of."""

    def __init__(self) -> None:
        self.intervals: list[int] = []
        self.told = asyncio.Event()

    def observe(self, body: Mapping[str, Any], *, deleted: bool = False) -> None:
        self.intervals.append(-1 if deleted else body["spec"]["everyMs"])
        self.told.set()

    async def until(self, interval: int, seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while interval not in self.intervals:
                self.told.clear()
                await self.told.wait()


@asynccontextmanager
async def watching(
    scene: Scene, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[tuple[Watched, asyncio.Task[None]]]:
    """kopf in this process, with some of its shipped settings changed: ``group__name=value``."""
    shipped = handlers.settings

    def changed(*namespaces: Any) -> kopf.OperatorSettings:
        own = shipped(*namespaces)
        for path, value in settings.items():
            group, _, name = path.partition("__")
            setattr(getattr(own, group), name, value)
        return own

    monkeypatch.setattr(handlers, "settings", changed)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    keeper = Watched()
    task = asyncio.create_task(
        handlers.watch(
            keeper,  # type: ignore[arg-type]
            kubeconfig=str(kubeconfig),
            namespaces=(scene.namespace,),
            ready=asyncio.Event(),
        )
    )
    try:
        yield keeper, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.25)  # aiohttp's TLS connections close a little later than they are told to


async def test_d5_a_proxy_that_keeps_connections_open_and_forwards_nothing_is_left(
    scene_without_operator: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = scene_without_operator
    await asyncio.to_thread(scene.create, offsetMs=5)
    server = scene.cluster.server
    with Proxy(server.port) as proxy:
        kubeconfig = tmp_path / "kubeconfig"
        direct = server.kubeconfig.read_text()
        kubeconfig.write_text(direct.replace(f"127.0.0.1:{server.port}", f"127.0.0.1:{proxy.port}"))
        async with watching(scene, kubeconfig, monkeypatch, watching__inactivity_timeout=2.0) as (keeper, _):
            await keeper.until(HOUR)
            await asyncio.to_thread(scene.patch, everyMs=60_001)
            await keeper.until(60_001)
            proxy.hold()
            await asyncio.to_thread(scene.patch, everyMs=60_002)
            with caplog.at_level(logging.DEBUG, "kopf"):
                async with asyncio.timeout(30):
                    while "inactive, reconnecting" not in caplog.text:  # noqa: ASYNC110 - a log has no say
                        await asyncio.sleep(0.05)
            assert 60_002 not in keeper.intervals
            proxy.release()
            await keeper.until(60_002)
            await asyncio.to_thread(scene.patch, everyMs=60_003)
            await keeper.until(60_003)


class Quick:
    """As the shipped back-offs, without end, but quicker."""

    def __iter__(self) -> Iterator[float]:
        return itertools.repeat(0.1)


@pytest.mark.parametrize("requests", [LISTS, "watch=true"], ids=["lists", "watches"])
async def test_d6_what_goes_on_failing_is_asked_for_ever(
    scene_without_operator: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: str
) -> None:
    assert len(list(itertools.islice(handlers.settings().networking.error_backoffs, 1000))) == 1000
    scene = scene_without_operator
    await asyncio.to_thread(scene.create, offsetMs=5)
    with ApiProxy(scene.cluster.server, tmp_path) as proxy, ExitStack() as failing:
        failing.enter_context(proxy.answering(500, to=requests))
        async with watching(scene, proxy.kubeconfig, monkeypatch, networking__error_backoffs=Quick()) as (keeper, task):
            async with asyncio.timeout(20):
                while len(proxy.requests(requests, status=500)) < 20:  # noqa: ASYNC110 - another thread's list
                    await asyncio.sleep(0.05)
            assert not task.done()
            failing.close()
            await asyncio.to_thread(scene.patch, everyMs=60_001)
            await keeper.until(60_001)


def test_d5_the_shipped_bounds_leave_a_dead_watch_within_90_seconds() -> None:
    own = handlers.settings()
    connecting = own.watching.connect_timeout or own.networking.connect_timeout or 0
    assert own.watching.inactivity_timeout
    assert own.watching.inactivity_timeout + own.watching.reconnect_backoff + connecting < 90
    # What is asked in between (a list, the CRD) ends sooner.
    assert own.networking.request_timeout
    assert own.networking.request_timeout < own.watching.inactivity_timeout
