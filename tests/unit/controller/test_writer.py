import asyncio
from contextlib import asynccontextmanager

import pytest
from kubernetes.aio.client.exceptions import ApiException

from tests.unit.controller.fake_time import run
from tickkeeper.controller.kube import Gone
from tickkeeper.controller.writer import Notice, Writer
from tickkeeper.schedules.desired import ResourceKey

A, B = ResourceKey("apps", "a"), ResourceKey("apps", "b")


class FakeKube:
    """Takes what is written; ``faults`` are raised first, ``seconds`` is how long a call takes."""

    def __init__(self, *faults, seconds=0.0):
        self.faults = list(faults)
        self.seconds = seconds
        self.statuses = []
        self.events = []
        self.calls = 0
        self.busy = 0
        self.most_at_once = 0

    async def _call(self):
        self.calls += 1
        self.busy += 1
        self.most_at_once = max(self.most_at_once, self.busy)
        try:
            await asyncio.sleep(self.seconds.pop(0) if isinstance(self.seconds, list) else self.seconds)
            if self.faults:
                raise self.faults.pop(0)
        finally:
            self.busy -= 1

    async def write_status(self, key, uid, status):
        await self._call()
        self.statuses.append((key.name, uid, status["heals"], asyncio.get_running_loop().time()))

    async def post_event(self, key, uid, **event):
        await self._call()
        self.events.append((key.name, uid, event["reason"], event["warning"]))

    @property
    def heals(self):
        return [heals for _, _, heals, _ in self.statuses]


@asynccontextmanager
async def writing(kube, **options):
    writer = Writer(kube, identity="pod-1", **{"per_second": 1000.0, **options})
    task = asyncio.create_task(writer.run())
    try:
        yield writer
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def patch(heals):
    return lambda: {"heals": heals}


def notice(key=A, reason="Healed", **more):
    return Notice(key, "uid-1", reason, "message", **more)


def test_a_status_and_an_event_are_written():
    async def main():
        kube = FakeKube()
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            writer.event(notice(warning=True))
            await asyncio.sleep(1)
            assert writer.writes == 2
        assert [(name, uid, heals) for name, uid, heals, _ in kube.statuses] == [("a", "uid-1", 1)]
        assert kube.events == [("a", "uid-1", "Healed", True)]

    run(main)


def test_only_the_newest_of_statuses_that_wait_is_written():
    async def main():
        kube = FakeKube()
        async with writing(kube) as writer:
            for heals in range(5):
                writer.status(A, "uid-1", patch(heals))
            await asyncio.sleep(10)
        assert kube.heals == [4]

    run(main)


def test_one_resource_is_written_once_a_second_and_others_are_not_held_up():
    async def main():
        kube = FakeKube()
        async with writing(kube) as writer:
            for heals in range(50):
                writer.status(A, "uid-1", patch(heals))
                if heals == 10:
                    writer.status(B, "uid-2", patch(0))
                await asyncio.sleep(0.1)
            await asyncio.sleep(5)
        mine = [(heals, time) for name, _, heals, time in kube.statuses if name == "a"]
        assert len(mine) <= 7
        assert mine[-1][0] == 49, "the last word is written"
        theirs = [time for name, _, _, time in kube.statuses if name == "b"]
        assert len(theirs) == 1
        assert theirs[0] < 1.2

    run(main)


def test_writes_are_limited_in_rate():
    async def main():
        kube = FakeKube()
        async with writing(kube, per_second=10.0) as writer:
            for number in range(30):
                writer.status(ResourceKey("apps", str(number)), "uid", patch(number))
            await asyncio.sleep(1.05)
            assert len(kube.statuses) == 11
            await asyncio.sleep(5)
        assert len(kube.statuses) == 30

    run(main)


def test_statuses_go_before_events():
    async def main():
        kube = FakeKube(seconds=0.1)
        async with writing(kube, lanes=1) as writer:
            writer.event(notice())
            writer.event(notice(B))
            writer.status(A, "uid-1", patch(1))
            await asyncio.sleep(0.11)
            assert (kube.heals, kube.events) == ([1], [])
            await asyncio.sleep(1)
        assert [name for name, *_ in kube.events] == ["a", "b"]

    run(main)


@pytest.mark.parametrize(
    "fault",
    [ApiException(500), ApiException(429), ApiException(503), TimeoutError(), OSError(), ConnectionResetError()],
)
def test_what_failed_is_tried_again(fault):
    async def main():
        kube = FakeKube(fault, fault, fault)
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            await asyncio.sleep(60)
        assert kube.heals == [1]
        assert kube.calls == 4

    run(main)


@pytest.mark.parametrize("fault", [ApiException(500), OSError()])
def test_an_event_that_failed_is_tried_again(fault):
    async def main():
        kube = FakeKube(fault, fault)
        async with writing(kube) as writer:
            writer.event(notice())
            writer.event(notice(B))
            await asyncio.sleep(60)
        assert sorted(name for name, *_ in kube.events) == ["a", "b"]

    run(main)


def test_pauses_grow_while_nothing_gets_through_and_stay_bounded():
    async def main():
        kube = FakeKube(*[ApiException(503)] * 1000)
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            await asyncio.sleep(600)
            assert 30 <= kube.calls <= 100, "about every 15 s at last"
            kube.faults.clear()
            await asyncio.sleep(20)
        assert kube.heals == [1]

    run(main)


def test_a_newer_status_wins_over_one_that_failed():
    async def main():
        kube = FakeKube(ApiException(500))
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            await asyncio.sleep(0.1)
            writer.status(A, "uid-1", patch(2))
            await asyncio.sleep(60)
        assert kube.heals[-1] == 2

    run(main)


@pytest.mark.parametrize("status", [400, 403, 422])
def test_what_was_refused_is_tried_again_seldom(status):
    # A CRD is being replaced, a right is granted later, a webhook is away: the status must not be lost.
    async def main():
        kube = FakeKube(*[ApiException(status)] * 4)
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            writer.status(B, "uid-2", patch(5))
            await asyncio.sleep(10)
            assert kube.calls <= 2, "no hot loop"
            await asyncio.sleep(600)
        assert sorted(kube.heals) == [1, 5]

    run(main)


def test_a_status_that_comes_while_the_former_is_refused_takes_its_place():
    async def main():
        kube = FakeKube(ApiException(422))
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            await asyncio.sleep(5)
            writer.status(A, "uid-1", patch(2))
            await asyncio.sleep(600)
        assert kube.heals == [2]

    run(main)


def test_an_event_that_was_refused_is_let_go():
    async def main():
        kube = FakeKube(ApiException(403))
        async with writing(kube) as writer:
            writer.event(notice())
            await asyncio.sleep(600)
        assert kube.calls == 1

    run(main)


def test_what_is_gone_is_let_go():
    async def main():
        kube = FakeKube(Gone("gone"), Gone("gone"))
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            writer.event(notice())
            await asyncio.sleep(600)
            assert writer.failures == 0
        assert (kube.calls, kube.statuses) == (2, [])

    run(main)


def test_a_forgotten_resource_is_not_written():
    async def main():
        kube = FakeKube(ApiException(422), ApiException(500))
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            await asyncio.sleep(0.1)
            writer.status(A, "uid-1", patch(2))
            writer.forget(A)
            await asyncio.sleep(600)
        assert kube.statuses == []
        assert kube.calls == 1

    run(main)


def test_two_statuses_of_one_resource_are_never_under_way_at_once():
    # A slow write must not arrive after a newer one.
    async def main():
        kube = FakeKube(seconds=[5.0, 0.0])
        async with writing(kube) as writer:
            writer.status(A, "uid-1", patch(1))
            await asyncio.sleep(2)
            writer.status(A, "uid-1", patch(2))
            await asyncio.sleep(20)
        assert kube.heals == [1, 2]
        assert kube.most_at_once == 1

    run(main)


def test_many_events_are_bounded_the_oldest_go_first():
    async def main():
        kube = FakeKube()
        writer = Writer(kube, identity="pod-1", per_second=100_000.0)
        for number in range(1500):
            writer.event(notice(ResourceKey("apps", str(number))))
        task = asyncio.create_task(writer.run())
        await asyncio.sleep(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(kube.events) == 1000
        assert kube.events[-1][0] == "1499"

    run(main)


def test_an_unknown_fault_is_not_swallowed():
    async def main():
        kube = FakeKube(ValueError("a bug"))
        writer = Writer(kube, identity="pod-1")
        writer.status(A, "uid-1", patch(1))
        with pytest.raises(ExceptionGroup, match="unhandled") as raised:
            await writer.run()
        assert isinstance(raised.value.exceptions[0], ValueError)

    run(main)
