import asyncio
from collections import Counter
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller.fake_time import run
from tickkeeper.controller.workqueue import WorkQueue


class Work:
    """Notes what is worked on; takes ``seconds`` for each."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds
        self.begun = {}
        self.done = []
        self.busy = Counter()
        self.most = Counter()

    async def __call__(self, key):
        self.busy[key] += 1
        self.most[key] = max(self.most[key], self.busy[key])
        self.begun[key] = asyncio.get_running_loop().time()
        await asyncio.sleep(self.seconds)
        self.busy[key] -= 1
        self.done.append((key, asyncio.get_running_loop().time()))

    @property
    def keys(self):
        return [key for key, _ in self.done]


@asynccontextmanager
async def working(work, lanes=1):
    queue = WorkQueue()
    task = asyncio.create_task(queue.run(work, lanes=lanes))
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_keys_are_worked_on_in_the_order_they_came():
    async def main():
        work = Work()
        async with working(work) as queue:
            for key in "abc":
                queue.add(key)
            await asyncio.sleep(10)
        assert work.keys == ["a", "b", "c"]

    run(main)


def test_a_key_that_waits_is_worked_on_once():
    async def main():
        work = Work()
        async with working(work) as queue:
            queue.add("a")
            await asyncio.sleep(0.5)
            for _ in range(5):
                queue.add("b")
            await asyncio.sleep(10)
        assert work.keys == ["a", "b"]

    run(main)


def test_a_key_that_is_worked_on_is_worked_on_once_more_afterwards():
    async def main():
        work = Work()
        async with working(work, lanes=4) as queue:
            queue.add("a")
            await asyncio.sleep(0.5)
            for _ in range(5):
                queue.add("a")
            await asyncio.sleep(10)
        assert work.keys == ["a", "a"]
        assert work.most["a"] == 1

    run(main)


def test_lanes_work_side_by_side():
    async def main():
        work = Work()
        async with working(work, lanes=3) as queue:
            for key in "abcd":
                queue.add(key)
            await asyncio.sleep(10)
        assert [time for _, time in work.done] == [1, 1, 1, 2]

    run(main)


def test_later_is_later_and_an_earlier_time_wins():
    async def main():
        work = Work(0)
        async with working(work) as queue:
            queue.add_later("a", 10)
            queue.add_later("a", 5)
            queue.add_later("a", 20)
            await asyncio.sleep(60)
        assert work.done == [("a", 5)]

    run(main)


def test_a_time_that_has_passed_does_not_stand_in_the_way_of_the_next():
    async def main():
        work = Work(0)
        async with working(work) as queue:
            queue.add_later("a", 1)
            await asyncio.sleep(2)
            queue.add_later("a", 10)
            await asyncio.sleep(20)
        assert work.done == [("a", 1), ("a", 12)]

    run(main)


def test_work_may_ask_to_be_done_again():
    async def main():
        async with asyncio.timeout(100):
            again = iter((True, True, False))
            done = []

            async def work(key):
                done.append(key)
                if next(again):
                    queue.add(key)

            async with working(work) as queue:
                queue.add("a")
                await asyncio.sleep(1)
            assert done == ["a", "a", "a"]

    run(main)


def test_an_end_takes_the_timers_with_it():
    async def main():
        work = Work(0)
        async with working(work) as queue:
            queue.add_later("a", 5)
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        assert work.done == []

    run(main)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3), st.booleans()), max_size=30), st.integers(1, 4))
def test_nothing_added_is_forgotten_and_nothing_runs_twice_at_once(script, lanes):
    async def main():
        work = Work()
        last = {}
        async with working(work, lanes) as queue:
            for key, pause, later in script:
                await asyncio.sleep(pause)
                last[key] = asyncio.get_running_loop().time()
                queue.add_later(key, pause) if later else queue.add(key)
            await asyncio.sleep(100)
        assert all(work.begun[key] >= last[key] for key in last), "each is worked on after it was last added"
        assert all(most == 1 for most in work.most.values())

    run(main)
