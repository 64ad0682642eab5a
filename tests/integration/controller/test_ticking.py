"""Ticking: whether anybody takes the ticks, and why not."""

import pytest
from redis import Redis

from tests.integration.controller.scene import Scene
from tests.integration.controller.worker_thread import worker


def late(scene: Scene, raw: Redis, seconds: int = 40) -> str:
    """Make the next tick overdue, as if nobody had taken it since then."""
    score = scene.score(raw)
    assert score is not None
    due = score - seconds * 1000
    job = f"repeat:drain.acme:{due}"
    with raw.pipeline() as pipe:  # at once: the operator must not see it half done
        pipe.rename(scene.key(f"repeat:drain.acme:{score}"), scene.key(job))
        pipe.zrem(scene.key("delayed"), f"repeat:drain.acme:{score}")
        pipe.zadd(scene.key("delayed"), {job: due * 4096})
        pipe.zadd(scene.key("repeat"), {"drain.acme": due})
        pipe.execute()
    return job


def test_before_the_first_tick_nothing_is_known(scene: Scene) -> None:
    scene.create_ready()
    assert scene.holds("Ticking", "Unknown", "AwaitingFirstTick")
    assert scene.holds("Ready", "True", "Ready")


def test_e7_a_queue_that_nobody_consumes_is_told_and_the_first_tick_ends_it(scene: Scene, raw: Redis) -> None:
    scene.create_ready(everyMs=1000, offsetMs=1)
    late(scene, raw)
    scene.until_condition("Ticking", "False", "NoWorkers", says="no worker is connected")
    assert scene.holds("Ready", "False", "NoWorkers")
    assert scene.holds("Registered", "True", "Registered")
    assert scene.told_once("NoWorkers").type == "Warning"
    due, version = scene.score(raw), scene.get()["metadata"]["resourceVersion"]
    scene.operator.after_sweeps(5)
    assert scene.score(raw) == due, "overdue is reported, never registered anew"
    assert scene.get()["metadata"]["resourceVersion"] == version, "and told once, not with each look"
    assert scene.heals() == 0
    with worker(scene.server.url, prefix=scene.prefix) as taken:
        scene.until(lambda: taken, what="a tick")
        assert taken[0]["tenantId"] == "acme"
        assert taken[0]["tickkeeper"]["name"] == "acme"
        scene.until_condition("Ticking", "True", "Ticking")
        scene.until_condition("Ready", "True", "Ready")
    assert scene.told_once("Ticking").type == "Normal"
    assert scene.heals() == 0


def test_ticks_that_are_taken_from_the_first_on_are_noticed_without_an_event(scene: Scene, raw: Redis) -> None:
    with worker(scene.server.url, prefix=scene.prefix) as taken:
        scene.create_ready(everyMs=100, offsetMs=1)
        scene.until_condition("Ticking", "True", "Ticking")
        assert taken
        assert [each.reason for each in scene.events()] == ["Registered"]
        version = scene.get()["metadata"]["resourceVersion"]
        before = len(taken)
        scene.operator.after_sweeps(3)
        scene.until(lambda: len(taken) > before)
        assert scene.get()["metadata"]["resourceVersion"] == version, "nothing changes with a tick"
    assert scene.heals() == 0


@pytest.mark.parametrize("reason", ["QueuePaused", "Busy", "RateLimited"])
def test_overdue_says_why(scene: Scene, raw: Redis, reason: str) -> None:
    scene.create_ready(everyMs=1000, offsetMs=1)
    job = late(scene, raw)
    with raw.pipeline() as pipe:
        match reason:
            case "QueuePaused":
                pipe.hset(scene.key("meta"), "paused", 1)
            case "RateLimited":
                pipe.hset(scene.key("meta"), "max", 1)
                pipe.set(scene.key("limiter"), 5, px=600_000)
            case "Busy":
                pipe.zrem(scene.key("delayed"), job)
                pipe.lpush(scene.key("active"), job)
                pipe.set(scene.key(f"{job}:lock"), "theirs")
        # Somebody is there: its name is all that is looked at.
        pipe.execute()
    with Redis(port=scene.server.port, client_name=f"{scene.prefix}:ticks") as named:
        named.ping()
        scene.until_condition("Ticking", "False", reason)
        assert scene.holds("Ready", "False", reason)
        assert scene.until_event(reason).type == "Warning"


def test_a_tick_whose_worker_died_is_revived(scene: Scene, raw: Redis) -> None:
    scene.create_ready(everyMs=1000, offsetMs=1)
    job = f"repeat:drain.acme:{scene.score(raw)}"
    with raw.pipeline() as pipe:
        pipe.zrem(scene.key("delayed"), job)
        pipe.lpush(scene.key("active"), job)  # and no lock: its worker is gone
        pipe.execute()
    scene.until(lambda: scene.heals() == 1, 10)
    assert scene.status()["lastHeal"]["reason"] == "ActiveLost"
    assert raw.zcard(scene.key("delayed")) == 1


def test_b14_flushall_during_an_active_tick_is_survived(scene: Scene, raw: Redis) -> None:
    with worker(scene.server.url, prefix=scene.prefix) as taken:
        scene.create_ready(everyMs=50, offsetMs=1)
        scene.until(lambda: taken)
        raw.flushall()
        before = len(taken)
        scene.until(lambda: len(taken) > before + 2, what="ticks go on")  # a stock worker takes one a second
    scene.until(lambda: scene.heals() >= 1)
    assert scene.operator.running
