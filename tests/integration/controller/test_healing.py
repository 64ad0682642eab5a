"""Whatever becomes of a scheduler in Redis: it comes back, is counted once and told once; a steady state is silent."""

import pytest
from redis import Redis

from tests.integration.controller.scene import Scene

#: Seconds within which a fault is mended and told: a sweep of 1 s, and a slow machine.
SOON = 10.0


def destroy(scene: Scene, raw: Redis, how: str) -> None:
    job = f"repeat:drain.acme:{scene.score(raw)}"
    match how:
        case "entry removed":
            raw.zrem(scene.key("repeat"), "drain.acme")
        case "hash deleted":
            raw.delete(scene.key("repeat:drain.acme"))
        case "next job deleted":
            raw.delete(scene.key(job))
        case "next job out of delayed":
            raw.zrem(scene.key("delayed"), job)
        case "next job gone altogether":
            raw.delete(scene.key(job))
            raw.zrem(scene.key("delayed"), job)
        case "another replica stops":
            scene.driver_stops()
        case "everything flushed":
            raw.flushall()


FAULTS = {
    "entry removed": "Missing",
    "hash deleted": "HashMissing",
    "next job deleted": "JobHashMissing",
    "next job out of delayed": "ChainBroken",
    "next job gone altogether": "ChainBroken",
    "another replica stops": "Missing",
    "everything flushed": "Missing",
}


@pytest.mark.parametrize(("how", "cause"), FAULTS.items(), ids=lambda value: value.replace(" ", "-"))
def test_e1_a3_b7_p1_a_broken_schedule_is_healed_counted_and_told_once(
    scene: Scene, raw: Redis, how: str, cause: str
) -> None:
    scene.create_ready()
    slot = scene.score(raw)
    destroy(scene, raw, how)
    scene.until(lambda: scene.heals() == 1, SOON, "one heal in the status")
    assert scene.score(raw) == slot, "the slot is kept"
    assert scene.record(raw)["name"] == "drain"
    assert raw.zscore(scene.key("delayed"), f"repeat:drain.acme:{slot}") is not None
    assert raw.hget(scene.key(f"repeat:drain.acme:{slot}"), "rjk") == "drain.acme"
    assert scene.status()["lastHeal"]["reason"] == cause
    scene.until_event("Healed", cause)
    scene.operator.after_sweeps(2)
    assert scene.heals() == 1
    scene.told_once("Healed")
    assert scene.holds("Ready", "True", "Ready")


def test_heals_are_a_metric_by_cause(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    before = scene.operator.metric("tickkeeper_heals_total", '{cause="HashMissing"}')
    raw.delete(scene.key("repeat:drain.acme"))
    scene.until(lambda: scene.heals() == 1, SOON)
    assert scene.operator.metric("tickkeeper_heals_total", '{cause="HashMissing"}') == before + 1


def test_a_status_that_others_change_is_put_back_each_time(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    raw.delete(scene.key("repeat:drain.acme"))
    scene.until(lambda: scene.heals() == 1, SOON)
    scene.alter_status(heals=7)
    scene.until(lambda: scene.heals() == 1, SOON)
    scene.alter_status(heals=8)
    scene.until(lambda: scene.heals() == 1, what="again, though it was put back a moment ago")


def test_e5_a_steady_state_writes_nothing(scene: Scene, raw: Redis) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        scene.create(name, tenant=name)
    for name in names:
        scene.until_condition("Ready", "True", name=name)
    scene.until(lambda: len(scene.events("Registered")) == 5)
    scene.operator.after_sweeps(1)
    versions = {name: scene.get(name)["metadata"]["resourceVersion"] for name in names}
    events = scene.events()
    keys = {key: raw.object("idletime", key) for key in scene.left(raw)}
    writes = scene.operator.metric("tickkeeper_api_writes_total")
    scene.operator.after_sweeps(4)
    assert {name: scene.get(name)["metadata"]["resourceVersion"] for name in names} == versions
    assert scene.events() == events
    assert scene.operator.metric("tickkeeper_api_writes_total") == writes
    assert set(keys) == scene.left(raw)


def test_b14_flushall_again_and_again_is_survived(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    for _ in range(5):
        raw.flushall()
        scene.until(lambda: scene.score(raw) is not None, SOON)
    scene.until(lambda: scene.heals() >= 1, SOON)
    assert scene.heals() <= 5
    scene.until_condition("Ready", "True")
    assert scene.operator.running
