"""The Lease on a real API server, with a proxy between that answers faults: who leads, and until when it may write."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from embedded.kubernetes import KubeApi
from tests.integration.controller.api_proxy import NOTHING, ApiProxy
from tickkeeper.api.resource import ResourceMeta
from tickkeeper.controller import kube
from tickkeeper.controller.lease import LeadershipLost, Lease, Times
from tickkeeper.schedules.desired import ResourceKey

#: The shipped ones (10, 6, 2 s), shrunk to what the API's whole seconds allow.
QUICK = Times(duration=4.0, deadline=2.4, retry=0.4)
#: Seconds for what takes a turn or two.
SOON = 15.0


@pytest.fixture(scope="module")
def proxy(kube_api: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProxy]:
    with ApiProxy(kube_api, tmp_path_factory.mktemp("proxy")) as found:
        yield found


class Candidate:
    """One process' part in the election, running."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.task = asyncio.create_task(lease.run())

    async def leads(self) -> None:
        async with asyncio.timeout(SOON):
            await self.lease.leading.wait()

    async def loses(self) -> float:
        """Wait for its end; the seconds from the last moment at which it might write."""
        async with asyncio.timeout(SOON):
            while self.lease.may_write():
                assert not self.task.done(), "it ended while it might still write"
                await asyncio.sleep(0.005)
            fenced = time.monotonic()
            with pytest.raises(LeadershipLost):
                await self.task
        return time.monotonic() - fenced

    async def dies(self) -> None:
        """As by SIGKILL: nothing is given back."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Election:
    """One Lease of one test, and its candidates; each goes through the proxy unless told otherwise."""

    def __init__(self, kube_api: KubeApi, proxy: ApiProxy, name: str) -> None:
        self._server = kube_api
        self.proxy = proxy
        self.name = name
        self.path = f"/leases/{name}"

    @asynccontextmanager
    async def candidate(self, identity: str, *, direct: bool = False) -> AsyncIterator[Candidate]:
        path = self._server.kubeconfig if direct else self.proxy.kubeconfig
        async with kube.connect(str(path)) as api:
            made = Candidate(Lease(api.leases, namespace="default", name=self.name, identity=identity, times=QUICK))
            try:
                yield made
            finally:
                await made.dies()

    async def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.kubectl("get", "lease", self.name, "-o", "json"))
        return found["spec"]

    async def kubectl(self, *args: str) -> str:
        return await asyncio.to_thread(self._server.kubectl, *args, "-n", "default")

    async def held_by(self, holder: str) -> None:
        await self.kubectl(
            "patch", "lease", self.name, "--type=merge", "-p", json.dumps({"spec": {"holderIdentity": holder}})
        )

    @staticmethod
    async def until(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SOON):
            while not condition():  # noqa: ASYNC110 - another thread's list, and a Lease without a say
                await asyncio.sleep(0.002)


@pytest.fixture
def election(kube_api: KubeApi, proxy: ApiProxy) -> Election:
    return Election(kube_api, proxy, f"lease-{uuid4().hex[:8]}")


async def test_an_absent_lease_is_made(election: Election) -> None:
    async with election.candidate("one") as one:
        assert not one.lease.may_write()
        await one.leads()
        assert one.lease.may_write()
        spec = await election.spec()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 4, 1)
    assert spec["acquireTime"] <= spec["renewTime"]


async def test_a_lease_that_was_deleted_is_made_again(election: Election) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        await election.kubectl("delete", "lease", election.name)
        made = len(election.proxy.requests("POST .*/leases", status=201))
        await election.until(lambda: len(election.proxy.requests("POST .*/leases", status=201)) > made)
        assert (await election.spec())["holderIdentity"] == "one"
        assert not one.task.done()


@pytest.mark.parametrize("status", [403, 404, 409, 500, 503, NOTHING])
@pytest.mark.parametrize("call", ["GET", "PUT"])
async def test_a_leader_whose_renewals_fail_is_fenced_then_ends(election: Election, call: str, status: int) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        async with election.candidate("two", direct=True) as two:
            with election.proxy.answering(status, to=f"{call} .*{election.path}"):
                after = await one.loses()
            assert after < QUICK.retry * 2 + 1, "fenced, it ends at its next turn"
            assert not two.lease.leading.is_set(), "it was fenced before another might lead"
            await two.leads()
        assert (await election.spec())["holderIdentity"] == "two"


@pytest.mark.parametrize("status", [403, 404, 409, 500, NOTHING])
async def test_one_failed_renewal_is_survived(election: Election, status: int) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        told = len(election.proxy.requests(election.path, status=status))
        with election.proxy.answering(status, to=election.path):
            await election.until(lambda: len(election.proxy.requests(election.path, status=status)) > told)
        renewals = len(election.proxy.requests(f"PUT .*{election.path}", status=200))
        await election.until(lambda: len(election.proxy.requests(f"PUT .*{election.path}", status=200)) > renewals)
        assert one.lease.may_write()
        assert not one.task.done()


@pytest.mark.parametrize("status", [403, 500, NOTHING])
async def test_a_candidate_goes_on_trying(election: Election, status: int) -> None:
    async with election.candidate("one") as one:
        with election.proxy.answering(status, to=election.path):
            await election.until(lambda: len(election.proxy.requests(election.path, status=status)) >= 3)
            assert not one.lease.leading.is_set()
            assert not one.task.done()
            asked = election.proxy.requests(election.path, status=status)
        # Each call is bounded by the retry period, and the next one comes no sooner.
        assert all(QUICK.retry * 0.5 < after - at < QUICK.retry * 2 + 1 for at, after in pairwise(asked))
        await one.leads()


async def test_an_answer_that_is_no_lease_is_a_failed_turn(election: Election) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        with election.proxy.answering(200, to=f"GET .*{election.path}"):
            await one.loses()


async def test_a_lease_that_another_took_is_lost_at_once(election: Election) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        await election.held_by("thief")
        await one.loses()
        assert (await election.spec())["holderIdentity"] == "thief"


async def test_a_released_lease_is_anothers_at_once(election: Election) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        async with election.candidate("two") as two:
            await election.until(lambda: two.lease._seen)  # it knows a holder that is alive
            await one.dies()
            await one.lease.release()
            assert not one.lease.may_write()
            began = time.monotonic()
            await two.leads()
        assert time.monotonic() - began < QUICK.duration - QUICK.retry, "it did not have to run out"
        assert (await election.spec())["leaseTransitions"] == 2


async def test_a_dead_leaders_lease_runs_out(election: Election) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        async with election.candidate("two") as two:
            await one.dies()
            while not two.lease.leading.is_set():
                assert not (one.lease.may_write() and two.lease.may_write())
                await asyncio.sleep(0.005)
                assert not two.task.done()
            assert not one.lease.may_write()


@pytest.mark.parametrize("status", [403, 500, NOTHING])
async def test_a_release_that_fails_is_bounded_and_raises_nothing(election: Election, status: int) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        await one.dies()
        with election.proxy.answering(status, to=election.path):
            began = time.monotonic()
            await one.lease.release()
            assert time.monotonic() - began < QUICK.retry + 2
        assert not one.lease.may_write()


async def test_a_record_of_another_is_not_released(election: Election) -> None:
    async with election.candidate("one") as one:
        await one.leads()
        await one.dies()
        await election.held_by("other")
        await one.lease.release()
        assert (await election.spec())["holderIdentity"] == "other"


async def test_of_five_at_once_one_leads(election: Election) -> None:
    async with AsyncExitStack() as stack:
        five = [(await stack.enter_async_context(election.candidate(name))).lease for name in "abcde"]
        await election.until(lambda: any(one.leading.is_set() for one in five))

        def asked_again() -> bool:
            assert sum(one.may_write() for one in five) == 1
            return len(election.proxy.requests(election.path)) >= asked + 12

        asked = len(election.proxy.requests(election.path))
        await election.until(asked_again)
        assert sum(one.leading.is_set() for one in five) == 1


async def test_what_may_not_be_written_does_not_reach_the_api_server(kube_api: KubeApi, proxy: ApiProxy) -> None:
    name = f"unled-{uuid4().hex[:8]}"
    key = ResourceKey("default", name)
    meta = ResourceMeta.model_validate(
        {"namespace": "default", "name": name, "uid": "u", "resourceVersion": "1", "generation": 1}
    )
    async with kube.connect(str(proxy.kubeconfig)) as api:

        def writes() -> list[Coroutine[Any, Any, object]]:
            event = api.post_event(
                key, "u", warning=False, reason="Healed", message="it", identity="one", at=datetime.now(UTC)
            )
            return [api.write_status(key, "u", {"heals": 1}), api.write_finalizers(meta, ()), event]

        api.may_write = lambda: False
        for write in writes():
            with pytest.raises(kube.NotLeading):
                await write
        assert proxy.requests(name) == []
        api.may_write = lambda: True
        for write in writes():
            with suppress(kube.Gone):
                await write
        assert len(proxy.requests(name)) == 2, "no TickSchedule of that name"
