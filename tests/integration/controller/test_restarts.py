"""Redis or the operator goes away and comes back: what was lost is healed, what was not is left alone."""

import time

from tests.integration.controller.conftest import Alone


def test_e5_a_restarted_operator_writes_nothing_where_nothing_changed(alone: Alone) -> None:
    scene = alone()
    names = [f"s{number}" for number in range(5)]
    for name in names:
        scene.create(name, tenant=name)
    for name in names:
        scene.until_condition("Ready", "True", name=name)
    scene.until(lambda: len(scene.events("Registered")) == 5)
    versions = {name: scene.get(name)["metadata"]["resourceVersion"] for name in names}
    assert scene.operator.terminate() == 0
    with scene.server.client() as raw:
        raw.config_resetstat()
        scene.operator.start()
        scene.operator.after_sweeps(2)
        assert {name: scene.get(name)["metadata"]["resourceVersion"] for name in names} == versions
        assert len(scene.events()) == 5
        assert "cmdstat_hset" not in raw.info("commandstats")


def test_p7_a_killed_redis_comes_back_empty_and_every_schedule_is_healed_once(alone: Alone) -> None:
    scene = alone()
    names = [f"s{number}" for number in range(8)]
    for name in names:
        scene.create(name, tenant=name)
    for name in names:
        scene.until_condition("Ready", "True", name=name)
    scene.server.kill()
    for name in names:
        scene.until_condition("Registered", "False", "RedisUnreachable", name=name, seconds=5)
    assert scene.holds("Ready", "False", "RedisUnreachable", name="s0")
    assert scene.holds("Ticking", "Unknown", "RedisUnreachable", name="s0")
    assert scene.status("s0")["registered"]["schedulerId"] == "drain.s0"
    assert scene.heals("s0") == 0
    assert scene.operator.get("/livez")[0] == 200, "a restart would not bring Redis back"

    scene.server.start()
    started = time.monotonic()
    with scene.server.client() as raw:
        scene.until(lambda: raw.zcard(scene.key("repeat")) == 8, 5)
        print(f"8 schedules are back {time.monotonic() - started:.3f} s after Redis answered")
        for name in names:
            scene.until_condition("Ready", "True", name=name)
        scene.operator.after_sweeps(2)
        assert [scene.heals(name) for name in names] == [1] * 8
        assert {scene.status(name)["lastHeal"]["reason"] for name in names} == {"Missing"}
    # One event for the whole Redis where many fail or heal together.
    for reason in ("RedisUnreachable", "RedisRecovered", "Healed"):
        assert "7 other TickSchedules" in scene.told_once(reason).message


def test_a_redis_that_comes_back_whole_heals_nothing(alone: Alone) -> None:
    scene = alone()
    scene.create_ready()
    scene.server.freeze()
    try:
        scene.until_condition("Registered", "False", "RedisUnreachable", seconds=5)
    finally:
        scene.server.thaw()
    scene.until_condition("Ready", "True")
    assert scene.heals() == 0
    scene.told_once("RedisRecovered")
    assert scene.events("Healed") == []


def test_what_happens_while_the_operator_is_away_is_healed_at_its_start(alone: Alone) -> None:
    scene = alone()
    scene.create_ready()
    slot = None
    with scene.server.client() as raw:
        slot = scene.score(raw)
        scene.operator.kill()
        raw.flushall()
        scene.operator.start()
        scene.until(lambda: scene.score(raw) == slot)
        scene.until(lambda: scene.heals() == 1)
        assert scene.status()["lastHeal"]["reason"] == "Missing"


def test_schedules_that_change_while_the_operator_is_away_are_caught_up_with(alone: Alone) -> None:
    scene = alone()
    for name in ("edited", "deleted", "suspended", "kept"):
        scene.create_ready(name, tenant=name)
    kept = scene.get("kept")["metadata"]["resourceVersion"]
    scene.operator.kill()
    scene.patch("edited", everyMs=60_000, offsetMs=5)
    scene.delete("deleted")
    scene.patch("suspended", suspend=True)
    scene.create("new", tenant="new")
    assert scene.find("deleted") is not None, "its finalizer holds it"
    scene.operator.start()
    with scene.server.client() as raw:
        scene.until_gone("deleted")
        scene.until_condition("Ready", "True", name="edited")
        scene.until_condition("Ready", "True", name="new")
        scene.until_condition("Ready", "True", "Suspended", name="suspended")
        assert set(raw.zrange(scene.key("repeat"), 0, -1)) == {"drain.edited", "drain.kept", "drain.new"}
        assert scene.record(raw, "drain.edited")["every"] == "60000"
    assert scene.get("kept")["metadata"]["resourceVersion"] == kept
    assert [scene.heals(name) for name in ("edited", "kept", "new", "suspended")] == [0, 0, 0, 0]


def test_an_operator_that_is_killed_again_and_again_while_schedules_change_catches_up(alone: Alone) -> None:
    scene = alone()
    names = [f"s{number}" for number in range(6)]
    for round_ in range(3):
        for name in names:
            if scene.find(name) is None:
                scene.create(name, tenant=name)
            else:
                scene.patch(name, everyMs=60_000 + round_, offsetMs=1)
        scene.operator.kill()
        scene.operator.start(synced=False)
    for name in names:
        scene.until_condition("Ready", "True", name=name)
    with scene.server.client() as raw:
        assert {scene.record(raw, f"drain.{name}")["every"] for name in names} == {"60002"}
        assert raw.zcard(scene.key("delayed")) == 6
    assert sum(scene.heals(name) for name in names) == 0
