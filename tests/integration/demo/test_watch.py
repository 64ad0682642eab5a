"""What the demo says that it saw is what was there."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from demo.strip import strip
from demo.watch import Look, Tick, Watch, leftovers, missed, on_its_slots
from embedded.process import wait_for
from embedded.redis import Redis

ID = "drain.acme"


@contextmanager
def watching(server: Redis) -> Iterator[Watch]:
    watch = Watch(lambda: server.client(socket_timeout=1, retry=Retry(NoBackoff(), 0)))
    watch.start()
    try:
        yield watch
    finally:
        watch.close()
        assert watch.fault is None


def seen(answer: Callable[[], Any]) -> Any:
    wait_for(answer, seconds=20, what="seen")
    return answer()


def finish(client: redis_py.Redis, slot: int, done: int, **fields: str) -> None:
    """A finished tick, as BullMQ leaves it."""
    job = {"rjk": ID, "data": json.dumps({"tenantId": "acme"}), "finishedOn": str(done), **fields}
    client.hset(f"bull:ticks:repeat:{ID}:{slot}", mapping=job)
    client.zadd(
        "bull:ticks:failed" if "failedReason" in fields else "bull:ticks:completed", {f"repeat:{ID}:{slot}": done}
    )


def test_a_loss_and_the_return_are_seen_in_their_order(redis_server: Redis, redis: redis_py.Redis) -> None:
    redis.zadd("bull:ticks:repeat", {ID: 1})
    with watching(redis_server) as watch:
        began = time.time()
        assert seen(lambda: watch.back(ID, since=began)) >= began
        assert watch.lost(ID, since=began) is None
        redis.flushall()
        wiped = time.time()
        gone = seen(lambda: watch.lost(ID, since=began))
        assert watch.back(ID, since=wiped) is None, "what was seen before the fault must not count as healed"
        redis.zadd("bull:ticks:repeat", {ID: 2})
        assert seen(lambda: watch.back(ID, since=wiped)) > gone


def test_a_redis_that_is_away_is_told_from_an_empty_one(own_redis: Redis) -> None:
    with watching(own_redis) as watch:
        began = time.time()
        seen(lambda: watch.looked > began)
        own_redis.kill()
        seen(lambda: watch.looks[-1].schedulers is None)
        assert watch.answered(since=began) is None
        own_redis.start()
        answered = seen(lambda: watch.answered(since=began))
        assert answered > began
        assert watch.back(ID, since=began) is None


def test_each_tick_is_read_once_and_failed_ones_are_told_apart(redis_server: Redis, redis: redis_py.Redis) -> None:
    with watching(redis_server) as watch:
        finish(redis, 1_000, 1_007, returnvalue=json.dumps({"done": 3}))
        finish(redis, 2_000, 2_004, returnvalue="null")
        finish(redis, 1_500, 2_004, failedReason="no outbox")  # in the same millisecond
        seen(lambda: len(watch.ticks) >= 3)
        looked = watch.looked
        seen(lambda: watch.looked > looked)
        assert len(watch.ticks) == 3
        first, second = watch.ticks_of(ID)
        assert (first.slot, first.done, first.tenant, first.result) == (1.0, 1.007, "acme", {"done": 3})
        assert second.result == {}
        assert [tick.failed for tick in watch.ticks if tick.failed] == ["no outbox"]


def test_whatever_of_a_scheduler_could_still_tick_is_found(redis: redis_py.Redis) -> None:
    redis.zadd("bull:ticks:repeat", {ID: 1, "drain.acme2": 1})
    redis.hset(f"bull:ticks:repeat:{ID}", "name", "drain")
    redis.zadd("bull:ticks:delayed", {f"repeat:{ID}:5": 1, "repeat:drain.acme2:5": 1})
    redis.rpush("bull:ticks:wait", f"repeat:{ID}:4")
    redis.zadd("bull:ticks:completed", {f"repeat:{ID}:3": 1})
    found = leftovers(redis, ID)
    assert found == ["its entry", "its hash", f"repeat:{ID}:5 in delayed", f"repeat:{ID}:4 in wait"]
    redis.flushall()
    assert leftovers(redis, ID) == []


def ticks(*slots: float) -> list[Tick]:
    return [Tick(ID, slot, slot + 0.01, {}, {}) for slot in slots]


def test_missed_ticks_are_the_empty_slots_between_the_first_and_the_last() -> None:
    assert missed(ticks(1.25, 2.25, 3.25), 1.0) == 0
    assert missed(ticks(1.25, 2.25, 5.25), 1.0) == 2
    assert missed(ticks(1.25, 1.25, 2.25), 1.0) == 0
    assert on_its_slots(ticks(1.25, 5.25), 1.0)
    assert not on_its_slots(ticks(1.25, 2.251), 1.0)


def test_the_strip_shows_ticks_gaps_and_both() -> None:
    watch = Watch(lambda: redis_py.Redis(port=1))
    watch.ticks = ticks(1.0, 2.0, 6.0)
    there, nothing = frozenset({ID}), frozenset[str]()
    watch.looks = [Look(0.0, nothing), Look(0.9, there), Look(2.5, nothing), Look(5.0, there), Look(7.5, None)]
    #                                     1    2    gone until 5   6    7    then away
    assert strip(watch, ID, 0.0, 1.0, 9) == " |+xx-|xx"


def test_a_loss_between_two_looks_is_bounded_by_the_pause_between_them() -> None:
    watch = Watch(lambda: redis_py.Redis(port=1))
    watch.looks, watch.looked = [Look(0.5, frozenset({ID}))], 3.0
    watch._times.extend([(1.0, 1.1), (1.5, 1.6), (2.9, 3.0)])
    assert watch.lost(ID, since=1.2) is None
    assert watch.back(ID, since=1.2) == 3.0
    assert watch.longest_pause(since=1.2) == 1.5
