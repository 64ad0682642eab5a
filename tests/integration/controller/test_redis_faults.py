"""Redis in trouble: the condition says which, within 5 s; nothing is taken for missing; it recovers by itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from embedded.ports import free_port
from embedded.redis import Redis as RedisServer
from tests.integration.controller.scene import Scene

REFERENCE = {"secretRef": {"name": "redis"}}
#: Seconds within which a fault must be in the status.
TOLD = 5.0


def on(scene: Scene, server: RedisServer, name: str = "acme", **spec: object) -> None:
    """Register a schedule in this Redis."""
    scene.secret(url=server.url)
    scene.create_ready(name, redis=REFERENCE, **spec)


def test_p8_a_redis_that_is_down_at_first_is_told_and_used_once_it_is_up(scene: Scene) -> None:
    server = RedisServer(port=free_port())
    scene.secret(url=server.url)
    scene.create(redis=REFERENCE)
    scene.until_condition("Registered", "False", "RedisUnreachable", says="no connection to Redis", seconds=TOLD)
    assert scene.holds("Ready", "False", "RedisUnreachable")
    assert "registered" not in scene.status()
    scene.told_once("RedisUnreachable")
    with server, server.client() as raw:
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.score(raw) is not None
        assert scene.heals() == 0
        assert scene.events("Healed") == []


def test_b5_a_frozen_redis_is_told_and_nothing_is_stuck_afterwards(scene: Scene, own_redis: RedisServer) -> None:
    on(scene, own_redis)
    scene.create_ready("elsewhere", tenant="elsewhere")
    with own_redis.client() as raw:
        slot = scene.score(raw)
        own_redis.freeze()
        try:
            scene.until_condition("Registered", "False", "RedisUnreachable", says="did not answer", seconds=TOLD)
            with scene.server.client() as other:  # one Redis' fault is not another's
                other.zrem(scene.key("repeat"), "drain.elsewhere")
                scene.until(lambda: scene.score(other, "drain.elsewhere") is not None, TOLD)
            scene.operator.after_sweeps(4)
            assert scene.operator.get("/livez")[0] == 200
            scene.patch(everyMs=60_000, offsetMs=4)
            scene.until_condition("Registered", "False", "RedisUnreachable", seconds=TOLD)
        finally:
            own_redis.thaw()
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.record(raw)["every"] == "60000"
        assert scene.score(raw) != slot
        assert raw.zcard(scene.key("delayed")) == 1
        assert scene.heals() == 0
        scene.told_once("RedisUnreachable")
        scene.told_once("RedisRecovered")
        raw.zrem(scene.key("repeat"), "drain.acme")
        scene.until(lambda: scene.heals() == 1, TOLD)
        # What was asked during the outage has been answered or given up: no connection waits.
        scene.until(lambda: not [each for each in raw.client_list() if int(each["qbuf"]) > 26], TOLD)


def test_a_redis_that_is_loading_is_told_and_never_taken_for_missing(scene: Scene) -> None:
    with RedisServer(key_load_delay=1000, loading_process_events_interval_bytes=1024) as server:
        on(scene, server)
        with server.client() as raw:
            slot = scene.score(raw)
            raw.mset({f"ballast:{number}": "x" * 64 for number in range(3000)})
            raw.save()
        server.restart(kill=True)  # returns when it has loaded
        scene.until_event("RedisUnreachable")
        scene.until_event("RedisRecovered")
        scene.until_condition("Ready", "True", seconds=TOLD)
        with server.client() as raw:
            assert scene.score(raw) == slot
        assert "Redis is loading its data" in scene.operator.text
        assert scene.heals() == 0
        assert scene.events("Healed") == []


@contextmanager
def replica(raw: Redis) -> Iterator[None]:
    raw.execute_command("REPLICAOF", "127.0.0.1", free_port())
    try:
        yield
    finally:
        raw.execute_command("REPLICAOF", "NO", "ONE")


def test_b1_a_redis_that_became_a_replica_is_told_and_used_again_as_master(
    scene: Scene, own_redis: RedisServer
) -> None:
    on(scene, own_redis)
    with own_redis.client() as raw:
        slot = scene.score(raw)
        with replica(raw):
            scene.until_condition("Registered", "False", "RedisUnreachable", says="replica", seconds=TOLD)
            assert scene.holds("Ready", "False", "RedisUnreachable")
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.score(raw) == slot
        assert scene.heals() == 0


def test_a_schedule_that_is_new_on_a_replica_is_told(scene: Scene, own_redis: RedisServer) -> None:
    with own_redis.client() as raw:
        with replica(raw):
            scene.secret(url=own_redis.url)
            scene.create(redis=REFERENCE)
            scene.until_condition("Registered", "False", "RedisUnreachable", says="replica", seconds=TOLD)
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.score(raw) is not None
        assert scene.heals() == 0


def test_b6_a_full_redis_is_told_and_the_chain_is_restored(scene: Scene, own_redis: RedisServer) -> None:
    on(scene, own_redis)
    with own_redis.client() as raw:
        raw.zrem(scene.key("repeat"), "drain.acme")  # noticed and mended before the memory is full
        scene.until(lambda: scene.heals() == 1, TOLD)
        raw.config_set("maxmemory", 1)
        raw.zrem(scene.key("repeat"), "drain.acme")
        scene.until_condition("Registered", "False", "RedisUnreachable", says="out of memory", seconds=TOLD)
        assert scene.holds("Ready", "False")
        seen = scene.get()["metadata"]["resourceVersion"]
        scene.until(lambda: scene.operator.text.count("out of memory") >= 1)
        assert scene.holds("Ready", "False"), "never a false Ready"
        raw.config_set("maxmemory", 0)
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.score(raw) is not None
        assert scene.get()["metadata"]["resourceVersion"] != seen
        scene.until(lambda: scene.heals() == 2, TOLD)


def test_b6_a_full_redis_is_told_where_nothing_is_missing_yet(scene: Scene, own_redis: RedisServer) -> None:
    # No tick can be made while writes are refused: Ready would be a lie.
    on(scene, own_redis)
    with own_redis.client() as raw:
        raw.config_set("maxmemory", 1)
        scene.until_condition("Ready", "False", says="out of memory", seconds=TOLD)
        raw.config_set("maxmemory", 0)
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.heals() == 0


def test_a_redis_with_too_few_replicas_is_told_where_nothing_is_missing_yet(
    scene: Scene, own_redis: RedisServer
) -> None:
    on(scene, own_redis)
    with own_redis.client() as raw:
        raw.config_set("min-replicas-to-write", 1)
        scene.until_condition("Ready", "False", "RedisUnreachable", says="too few replicas", seconds=TOLD)
        raw.config_set("min-replicas-to-write", 0)
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.heals() == 0


def test_b7_an_evicting_redis_is_not_safe(scene: Scene, own_redis: RedisServer) -> None:
    on(scene, own_redis)
    with own_redis.client() as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
        scene.until_condition("RedisSafe", "False", "EvictionPolicy", says="allkeys-lru.*noeviction", seconds=TOLD)
        assert scene.holds("Ready", "True", "Ready"), "it ticks all the same"
        assert scene.until_event("EvictionPolicy").type == "Warning"
        raw.config_set("maxmemory-policy", "noeviction")
        scene.until_condition("RedisSafe", "True", "NoEviction", seconds=TOLD)
        scene.told_once("EvictionPolicy")


def test_b7_an_evicted_hash_is_healed_whatever_the_policy(scene: Scene, own_redis: RedisServer) -> None:
    on(scene, own_redis)
    with own_redis.client() as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
        raw.delete(scene.key("repeat:drain.acme"))
        scene.until(lambda: scene.heals() == 1, TOLD)
        assert scene.record(raw)["name"] == "drain"


@pytest.mark.parametrize("key", ["repeat:drain.acme", "delayed", "meta", "marker", "stalled", "events"])
def test_a_key_of_another_type_is_one_schedules_fault(scene: Scene, raw: Redis, key: str) -> None:
    raw.set(scene.key(key), "theirs")
    scene.create()
    scene.create_ready("elsewhere", queueName="other")
    scene.until_condition("Registered", "False", "WrongType", says=scene.key(key), seconds=TOLD)
    assert raw.get(scene.key(key)) == "theirs"
    scene.delete()
    scene.until_gone()
    assert raw.get(scene.key(key)) == "theirs"


def test_a_key_of_another_type_is_told_where_the_schedule_is_whole(scene: Scene, raw: Redis) -> None:
    # Its schedulers need no write, but no tick could be taken.
    scene.create_ready()
    for name in ("marker", "stalled", "events", "id"):
        raw.delete(scene.key(name))
        raw.hset(scene.key(name), "theirs", "1")
        scene.until_condition("Registered", "False", "WrongType", says=scene.key(name), seconds=TOLD)
        raw.delete(scene.key(name))
        scene.until_condition("Ready", "True", seconds=TOLD)
    assert scene.heals() == 0


def test_a_type_that_becomes_wrong_is_told_and_its_end_heals(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    raw.delete(scene.key("repeat:drain.acme"))
    scene.until(lambda: scene.heals() == 1)
    raw.delete(scene.key("repeat:drain.acme"), scene.key("repeat"))
    raw.set(scene.key("repeat"), "theirs")
    scene.until_condition("Registered", "False", "WrongType", seconds=TOLD)
    heals = scene.heals()
    raw.delete(scene.key("repeat"))
    scene.until_condition("Ready", "True", seconds=TOLD)
    assert scene.heals() == heals + 1


def test_b10_a_redis_without_free_connections_is_told_and_not_stormed(scene: Scene, own_redis: RedisServer) -> None:
    on(scene, own_redis)
    with own_redis.client() as raw:
        raw.ping()
        raw.config_set("maxclients", 1)
        raw.client_kill_filter(skipme=True, _type="normal")
        scene.until_condition("Registered", "False", "RedisUnreachable", seconds=TOLD)
        before = int(raw.info("stats")["rejected_connections"])
        scene.until(lambda: int(raw.info("stats")["rejected_connections"]) > before)
        start = raw.time()
        scene.until(lambda: raw.time()[0] >= start[0] + 2)
        rejected = int(raw.info("stats")["rejected_connections"]) - before
        assert rejected <= 100, f"{rejected} connections in about 2 s"
        raw.config_set("maxclients", 1000)
        scene.until_condition("Ready", "True", seconds=TOLD)
        assert scene.heals() == 0


def test_one_redis_that_is_away_says_so_once_for_all_its_schedules(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    names = [f"s{number}" for number in range(8)]
    for name in names:
        scene.create(name, tenant=name, redis=REFERENCE)
    for name in names:
        scene.until_condition("Ready", "True", name=name)
    own_redis.kill()
    for name in names:
        scene.until_condition("Registered", "False", "RedisUnreachable", name=name, seconds=TOLD)
    assert scene.operator.metric("tickkeeper_redis_up", f'{{redis="redis://127.0.0.1:{own_redis.port}/0"}}') == 0
    versions = {name: scene.get(name)["metadata"]["resourceVersion"] for name in names}
    own_redis.start()
    for name in names:
        scene.until_condition("Ready", "True", name=name, seconds=TOLD)
    scene.told_once("RedisUnreachable")
    scene.told_once("RedisRecovered")
    assert versions != {name: scene.get(name)["metadata"]["resourceVersion"] for name in names}
    assert scene.operator.metric("tickkeeper_redis_up", f'{{redis="redis://127.0.0.1:{own_redis.port}/0"}}') == 1
