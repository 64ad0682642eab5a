"""A changed identity: removed at the old place first, then registered at the new one."""

from typing import Any

import pytest
from redis import Redis

from embedded.redis import Redis as RedisServer
from tests.integration.controller.scene import Scene


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"queueName": "other"}, {"queue": "other"}),
        ({"prefix": "{}-b"}, {"prefix": "{}-b"}),
        ({"jobName": "mail"}, {"id_": "mail.acme"}),
        ({"tenant": "beta"}, {"id_": "drain.beta"}),
        ({"schedulerId": "mine:1:a"}, {"id_": "mine:1:a"}),
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_changed_identity_moves_the_scheduler(
    scene: Scene, raw: Redis, change: dict[str, Any], where: dict[str, str]
) -> None:
    scene.create_ready()
    change = {name: value.format(scene.prefix) for name, value in change.items()}
    where = {name: value.format(scene.prefix) for name, value in where.items()}
    scene.patch(**change)
    scene.until_condition("Ready", "True")
    registered = scene.status()["registered"]
    assert {"id_": registered["schedulerId"], "queue": registered["queueName"], "prefix": registered["prefix"]} == {
        "id_": "drain.acme",
        "queue": "ticks",
        "prefix": scene.prefix,
        **where,
    }
    assert scene.score(raw, **where) is not None
    assert scene.record(raw, **where)["name"] == change.get("jobName", "drain")
    entries = [
        (key, member)
        for key in (*scene.left(raw), *scene.left(raw, f"{scene.prefix}-b"))
        if key.endswith(":repeat")
        for member in raw.zrange(key, 0, -1)
    ]
    assert len(entries) == 1, "one scheduler, at the new place only"
    jobs = [key for key in (*scene.left(raw), *scene.left(raw, f"{scene.prefix}-b")) if ":repeat:" in key]
    assert len(jobs) == 2, "its hash and its one pending job"
    assert scene.heals() == 0
    assert [each.reason for each in scene.events() if each.type == "Warning"] == []


def test_two_resources_may_swap_their_places(scene: Scene, raw: Redis) -> None:
    scene.create_ready("one", jobName="one")
    scene.create_ready("two", jobName="two")
    scene.patch("one", jobName="two")
    scene.patch("two", jobName="one")
    scene.until_condition("Ready", "True", name="one")
    scene.until_condition("Ready", "True", name="two")
    assert scene.stamp(raw, "two.acme")["name"] == "one"
    assert scene.stamp(raw, "one.acme")["name"] == "two"
    assert set(raw.zrange(scene.key("repeat"), 0, -1)) == {"one.acme", "two.acme"}
    assert raw.zcard(scene.key("delayed")) == 2


def test_another_redis_is_moved_to(scene: Scene, raw: Redis, own_redis: RedisServer) -> None:
    scene.create_ready()
    scene.secret(url=own_redis.url)
    scene.patch(redis={"secretRef": {"name": "redis"}})
    scene.until_condition("Ready", "True")
    assert scene.left(raw) == set()
    with own_redis.client() as theirs:
        assert scene.score(theirs) is not None
        assert scene.status()["registered"]["redis"] == f"redis://127.0.0.1:{own_redis.port}/0"
        scene.patch(redis=None)
        scene.until_condition("Ready", "True")
        assert scene.left(theirs) == set()
    assert scene.score(raw) is not None
    assert scene.heals() == 0


def test_another_database_of_one_redis_is_another_place(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.secret(url=scene.server.url.removesuffix("/0") + "/3")
    scene.patch(redis={"secretRef": {"name": "redis"}})
    scene.until_condition("Ready", "True")
    assert scene.left(raw) == set()
    with Redis(port=scene.server.port, db=3, decode_responses=True) as third:
        assert scene.score(third) is not None


def test_a_secret_that_names_another_redis_moves_the_scheduler(scene: Scene, own_redis: RedisServer) -> None:
    with RedisServer() as new, own_redis.client() as old_raw, new.client() as new_raw:
        scene.secret(url=own_redis.url)
        scene.create_ready(redis={"secretRef": {"name": "redis"}})
        scene.secret(url=new.url)
        # Nothing of the resource changes: the Secret is read again within half a minute.
        scene.until(lambda: scene.score(new_raw) is not None, 45, "registered in the new Redis")
        scene.until(lambda: scene.left(old_raw) == set(), what="nothing is left in the old one")
        scene.until(lambda: scene.status()["registered"]["redis"].endswith(f":{new.port}/0"))
        assert scene.heals() == 0


def test_an_old_redis_that_is_gone_is_told_and_not_waited_for(scene: Scene, raw: Redis, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    scene.create_ready(redis={"secretRef": {"name": "redis"}})
    own_redis.kill()
    scene.until_condition("Registered", "False", "RedisUnreachable", seconds=5)
    scene.patch(redis=None)
    scene.until_condition("Ready", "True", seconds=10)
    assert scene.score(raw) is not None
    event = scene.until_event("OldRedisUnreachable")
    assert event.type == "Warning"
    assert f"127.0.0.1:{own_redis.port}" in event.message
    scene.operator.after_sweeps(2)
    scene.told_once("OldRedisUnreachable")


def test_a_move_while_suspended_registers_at_the_new_place_only(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.patch(suspend=True, queueName="other")
    scene.until_condition("Ready", "True", "Suspended")
    scene.until(lambda: scene.left(raw) == set(), what="nothing at the old place")
    scene.patch(suspend=False)
    scene.until_condition("Ready", "True", "Ready")
    assert scene.score(raw, queue="other") is not None
    assert scene.score(raw) is None


def test_deleting_in_the_middle_of_a_move_leaves_nothing(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.patch(queueName="other")
    scene.delete()
    scene.until_gone()
    assert scene.left(raw) == set()
