"""Deletion removes what would tick again, and never hangs."""

import time

import pytest
from redis import Redis

from embedded.redis import Redis as RedisServer
from tests.integration.controller.scene import Scene


def test_deletion_leaves_no_entry_hash_or_pending_job(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.create_ready("other", tenant="other")
    assert scene.finalized()
    scene.delete()
    scene.until_gone(seconds=5)
    assert scene.score(raw) is None
    assert all("drain.other" in key or key.rsplit(":", 1)[1] in ("repeat", "delayed") for key in scene.left(raw))
    assert raw.zcard(scene.key("delayed")) == 1
    assert scene.until_event("Removed", name="acme").type == "Normal"
    scene.operator.after_sweeps(2)
    assert scene.score(raw) is None
    assert scene.holds("Ready", "True", name="other")


def test_deletion_takes_the_tick_that_already_waits(scene: Scene, raw: Redis) -> None:
    scene.create_ready(everyMs=100, offsetMs=1)
    scene.driver_starts("theirs", every=1_000)  # a queue of others too
    job = f"repeat:drain.acme:{scene.score(raw)}"
    raw.zrem(scene.key("delayed"), job)
    raw.lpush(scene.key("wait"), job)
    scene.delete()
    scene.until_gone()
    assert not any("drain.acme" in key for key in scene.left(raw))
    assert not any("drain.acme" in job for job in raw.lrange(scene.key("wait"), 0, -1))
    assert scene.score(raw, "theirs") is not None


@pytest.mark.parametrize("broken", ["entry", "hash", "everything"])
def test_deletion_of_what_is_broken_leaves_nothing(scene: Scene, raw: Redis, broken: str) -> None:
    scene.create_ready()
    scene.annotate(paused="true")  # so that it stays broken until the deletion
    scene.until_condition("Registered", "False", "OperatorPaused")
    match broken:
        case "entry":
            raw.zrem(scene.key("repeat"), "drain.acme")
        case "hash":
            raw.delete(scene.key("repeat:drain.acme"))
        case "everything":
            raw.delete(*scene.left(raw))
    scene.delete()
    scene.until_gone()
    assert scene.left(raw) == set()


def test_retain_needs_no_finalizer_and_leaves_the_scheduler(scene: Scene, raw: Redis) -> None:
    scene.create_ready(deletionPolicy="Retain")
    assert not scene.finalized()
    assert scene.stamp(raw)["deletionPolicy"] == "Retain"
    before = scene.record(raw)
    scene.delete()
    assert scene.find() is None
    scene.create_ready("other", tenant="other")
    scene.operator.after_sweeps(2)
    assert scene.record(raw) == before
    assert scene.score(raw) is not None


def test_the_deletion_policy_may_change(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    assert scene.finalized()
    scene.patch(deletionPolicy="Retain")
    scene.until_condition("Ready", "True")
    assert not scene.finalized()
    assert scene.stamp(raw)["deletionPolicy"] == "Retain"
    scene.patch(deletionPolicy="Delete")
    scene.until_condition("Ready", "True")
    assert scene.finalized()
    assert scene.stamp(raw)["deletionPolicy"] == "Delete"
    assert scene.heals() == 0
    scene.delete()
    scene.until_gone()
    assert scene.left(raw) == set()


def test_a_finalizer_taken_off_by_hand_leaves_no_tick(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.create_ready("other", tenant="other")
    scene.annotate(paused="true")  # or the operator would put it on again
    scene.until_condition("Registered", "False", "OperatorPaused")
    scene.annotate(paused=None)
    scene.until_condition("Ready", "True")
    scene.delete("other")
    scene.until_gone("other")
    scene.cluster.clear(scene.namespace)
    scene.until(lambda: scene.left(raw) == set(), what="the scheduler is gone as well")


def test_a_suspended_and_a_refused_resource_are_deleted_at_once(scene: Scene, raw: Redis) -> None:
    scene.create("suspended", suspend=True)
    scene.create("lost", redis={"secretRef": {"name": "absent"}})
    scene.until_condition("Ready", "True", "Suspended", name="suspended")
    scene.until_condition("Ready", "False", "ReferenceNotFound", name="lost")
    for name in ("suspended", "lost"):
        scene.delete(name)
        scene.until_gone(name, 5)
    assert scene.left(raw) == set()


def test_deletion_with_redis_gone_is_released_after_the_grace_period(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    scene.create_ready(redis={"secretRef": {"name": "redis"}})
    own_redis.kill()
    scene.until_condition("Registered", "False", "RedisUnreachable", seconds=5)
    scene.delete()
    asked = time.monotonic()
    scene.until_gone(seconds=15)
    assert time.monotonic() - asked > 1.5, "it waits for Redis first: 3 s, from a time in whole seconds"
    event = scene.until_event("OldRedisUnreachable")
    assert event.type == "Warning"
    assert f"127.0.0.1:{own_redis.port}" in event.message
    assert "drain.acme" in event.message


def test_deletion_waits_for_a_redis_that_comes_back_in_time(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    scene.create_ready(redis={"secretRef": {"name": "redis"}})
    own_redis.freeze()
    try:
        scene.until_condition("Registered", "False", "RedisUnreachable", seconds=5)
        scene.delete()
    finally:
        own_redis.thaw()
    scene.until_gone(seconds=10)
    with own_redis.client() as raw:
        assert scene.left(raw) == set()
    assert scene.events("OldRedisUnreachable") == []


def test_a_scheduler_left_behind_by_a_deletion_is_removed_once_redis_is_back(
    scene: Scene, own_redis: RedisServer
) -> None:
    scene.secret(url=own_redis.url)
    scene.create_ready(redis={"secretRef": {"name": "redis"}})
    own_redis.freeze()
    try:
        scene.until_condition("Registered", "False", "RedisUnreachable", seconds=5)
        scene.delete()
        scene.until_gone(seconds=15)
    finally:
        own_redis.thaw()
    with own_redis.client() as raw:
        scene.until(lambda: scene.left(raw) == set(), 15, "no immortal tick")


def test_deletion_with_the_secret_gone_removes_the_scheduler_all_the_same(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    scene.create_ready(redis={"secretRef": {"name": "redis"}})
    scene.cluster.core.delete_namespaced_secret("redis", scene.namespace)
    scene.delete()
    scene.until_gone(seconds=15)
    with own_redis.client() as raw:
        assert scene.left(raw) == set(), "the connection was still known"


def test_e2_a_whole_namespace_is_emptied_while_redis_and_the_secret_are_gone(
    scene: Scene, own_redis: RedisServer
) -> None:
    # No namespace controller runs here: its part, deleting all that is in it, is done by hand.
    scene.secret(url=own_redis.url)
    reference = {"secretRef": {"name": "redis"}}
    names = [f"s{number}" for number in range(5)]
    for name in names:
        scene.create(name, tenant=name, redis=reference)
    scene.create("own", tenant="own")
    for name in (*names, "own"):
        scene.until_condition("Ready", "True", name=name)
    own_redis.kill()
    scene.cluster.core.delete_namespace(scene.namespace)
    scene.cluster.core.delete_namespaced_secret("redis", scene.namespace)
    for name in (*names, "own"):
        scene.delete(name)
    for name in (*names, "own"):
        scene.until_gone(name, 20)
    with scene.server.client() as raw:
        assert scene.left(raw) == set()
