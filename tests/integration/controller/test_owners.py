"""Who may write a scheduler: drift, fights, conflicts between resources, applications, other clusters."""

import json
import re
import time

import pytest
from redis import Redis

from tests.integration.controller.scene import HOUR, Scene


def rewrite_stamp(scene: Scene, raw: Redis, **changes: object) -> None:
    data = json.loads(scene.record(raw)["data"])
    data["tickkeeper"] |= changes
    raw.hset(scene.key("repeat:drain.acme"), "data", json.dumps(data))


# --- drift and fights ---


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("every", "1234", rf"every: 1234 -> {HOUR}"),
        ("name", "other", "name: other -> drain"),
        ("opts", "{}", r"opts\.removeOnComplete: \(none\) -> "),
        ("limit", "5", r"limit: 5 -> \(none\)"),
    ],
)
def test_drift_is_corrected_and_told_with_old_and_new(
    scene: Scene, raw: Redis, field: str, value: str, told: str
) -> None:
    scene.create_ready()
    raw.hset(scene.key("repeat:drain.acme"), field, value)
    event = scene.until_event("DriftCorrected", told)
    assert event.type == "Normal"
    scene.until(lambda: scene.heals() == 1)
    assert scene.status()["lastHeal"]["reason"] == "Differs"
    assert scene.record(raw).get(field) != value
    scene.operator.after_sweeps(2)
    assert scene.heals() == 1
    scene.told_once("DriftCorrected")
    assert scene.holds("Ready", "True", "Ready")


def test_p3_an_applications_own_start_is_corrected(scene: Scene, raw: Redis) -> None:
    # It registers without data: our stamp is gone, but status says that the scheduler is ours.
    scene.create_ready()
    scene.driver_starts(every=60_000)
    scene.until_event("DriftCorrected", rf"every: 60000 -> {HOUR}")
    assert scene.record(raw)["every"] == str(HOUR)
    assert scene.stamp(raw)["name"] == "acme"
    scene.until_condition("Ready", "True")


def test_e6_two_fighting_writers_are_no_hot_loop(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    written = 0

    def fight() -> bool:
        nonlocal written
        if scene.record(raw).get("every") == str(HOUR):
            raw.hset(scene.key("repeat:drain.acme"), "every", "1234")
            written += 1
        return scene.holds("Registered", "False", "Fighting") is not None

    scene.until(fight, 30, "Fighting")
    assert scene.holds("Ready", "False", "Fighting", says=rf"every: 1234 -> {HOUR}")
    assert written <= 4
    scene.operator.after_sweeps(3)
    assert scene.record(raw)["every"] == "1234", "left alone for a while"
    assert len(scene.events("DriftCorrected")) <= 4
    scene.told_once("Fighting")
    # The fight is over: what was held back is mended in the end, and the condition with it.
    raw.hset(scene.key("repeat:drain.acme"), "every", str(HOUR))
    scene.until_condition("Ready", "True", "Ready")


def test_e6_a_writer_that_removes_again_and_again_is_no_hot_loop(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    writes = scene.operator.metric("tickkeeper_api_writes_total")
    rounds = 0
    end = time.monotonic() + 6

    def fight() -> bool:
        nonlocal rounds
        if scene.score(raw) is not None:
            scene.driver_stops()
            rounds += 1
        return time.monotonic() > end

    scene.until(fight, 60)
    told = scene.operator.metric("tickkeeper_api_writes_total") - writes
    assert rounds >= 3
    assert told <= 30, f"{told:.0f} writes to the API server for {rounds} removals in six seconds"
    scene.until(lambda: scene.score(raw) is not None, 40, "it is back once the other writer has ended")


# --- two resources ---


def test_conflict_the_oldest_wins_and_the_other_takes_over(scene: Scene, raw: Redis) -> None:
    scene.create_ready("first")
    first = scene.record(raw)
    # creationTimestamp has whole seconds: within one, the smaller uid would win.
    born = scene.get("first")["metadata"]["creationTimestamp"]
    probe = (f"probe{number}" for number in range(1000))

    def another_second() -> bool:
        name = next(probe)
        scene.create(name, suspend=True, tenant=name)
        return scene.get(name)["metadata"]["creationTimestamp"] > born

    scene.until(another_second)
    scene.create("second", everyMs=60_000, offsetMs=3)
    condition = scene.until_condition("Registered", "False", "Conflict", name="second")
    assert f"{scene.namespace}/first" in condition["message"]
    assert scene.holds("Ready", "False", "Conflict", name="second")
    assert scene.until_event("Conflict", name="second").type == "Warning"
    assert "registered" not in scene.status("second")
    scene.operator.after_sweeps(2)
    assert scene.record(raw) == first
    assert scene.holds("Ready", "True", name="first")

    scene.delete("first")
    scene.until_gone("first")
    scene.until_condition("Ready", "True", name="second")
    assert scene.record(raw)["every"] == "60000"
    assert scene.stamp(raw)["name"] == "second"
    assert raw.zcard(scene.key("delayed")) == 1


def test_the_loser_of_a_conflict_is_deleted_without_harm(scene: Scene, raw: Redis) -> None:
    scene.create_ready("first")
    scene.create("second")
    winner, loser = ("first", "second") if _older(scene, "first", "second") else ("second", "first")
    scene.until_condition("Registered", "False", "Conflict", name=loser)
    scene.until_condition("Registered", "True", name=winner)
    scene.delete(loser)
    scene.until_gone(loser)
    scene.operator.after_sweeps(2)
    assert scene.score(raw) is not None
    assert scene.stamp(raw)["name"] == winner
    assert scene.holds("Ready", "True", name=winner)


def _older(scene: Scene, one: str, other: str) -> bool:
    def age(name: str) -> tuple[str, str]:
        meta = scene.get(name)["metadata"]
        return meta["creationTimestamp"], meta["uid"]

    return age(one) < age(other)


def test_a_resource_edited_into_a_conflict_leaves_nothing_at_its_old_place(scene: Scene, raw: Redis) -> None:
    scene.create_ready("one")
    scene.create_ready("two", jobName="other")
    winner, loser = ("one", "two") if _older(scene, "one", "two") else ("two", "one")
    theirs = {"one": "drain.acme", "two": "other.acme"}
    scene.patch(loser, jobName=scene.get(winner)["spec"]["jobName"])
    scene.until_condition("Registered", "False", "Conflict", name=loser)
    scene.until(
        lambda: scene.left(raw) and not any(theirs[loser] in key for key in scene.left(raw)),
        what=f"nothing of {theirs[loser]} is left",
    )
    assert scene.score(raw, theirs[winner]) is not None


def test_a_conflict_ends_when_the_second_is_edited(scene: Scene, raw: Redis) -> None:
    scene.create_ready("one")
    scene.create("two")
    loser = "two" if _older(scene, "one", "two") else "one"
    scene.until_condition("Registered", "False", "Conflict", name=loser)
    scene.patch(loser, jobName="other")
    scene.until_condition("Ready", "True", name=loser)
    assert set(raw.zrange(scene.key("repeat"), 0, -1)) == {"drain.acme", "other.acme"}


# --- applications and other clusters ---


def test_an_applications_scheduler_is_left_alone_and_the_remedy_is_told(scene: Scene, raw: Redis) -> None:
    scene.driver_starts(every=60_000)
    before = scene.record(raw)
    scene.create()
    condition = scene.until_condition("Registered", "False", "ForeignOwner", says="spec.schedulerId")
    assert "drain.acme" in condition["message"]
    assert scene.until_event("ForeignOwner").type == "Warning"
    scene.operator.after_sweeps(2)
    assert scene.record(raw) == before
    assert scene.heals() == 0
    assert scene.events("Healed") == []

    scene.delete()
    scene.until_gone()
    assert scene.record(raw) == before, "never ours, so not ours to remove"


def test_an_applications_scheduler_is_adopted_when_named(scene: Scene, raw: Redis) -> None:
    scene.driver_starts("drain", every=60_000)
    scene.create(schedulerId="drain")
    scene.until_condition("Ready", "True")
    assert scene.record(raw, "drain")["every"] == str(HOUR)
    assert scene.stamp(raw, "drain")["name"] == "acme"
    assert raw.zcard(scene.key("delayed")) == 1
    assert scene.heals() == 0, "nothing of ours was broken"
    scene.delete()
    scene.until_gone()
    assert scene.left(raw) == set()


def test_naming_a_scheduler_afterwards_adopts_it(scene: Scene, raw: Redis) -> None:
    scene.driver_starts()
    scene.create()
    scene.until_condition("Registered", "False", "ForeignOwner")
    scene.patch(schedulerId="drain.acme")
    scene.until_condition("Ready", "True")
    assert scene.stamp(raw)["name"] == "acme"


def test_a_foreign_scheduler_that_its_application_removes_is_replaced_by_ours(scene: Scene, raw: Redis) -> None:
    scene.driver_starts()
    scene.create()
    scene.until_condition("Registered", "False", "ForeignOwner")
    scene.driver_stops()
    scene.until_condition("Ready", "True")
    assert scene.stamp(raw)["name"] == "acme"
    assert scene.heals() == 0


def test_another_clusters_scheduler_is_left_alone_until_the_annotation_adopts_it(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    rewrite_stamp(scene, raw, cluster="staging", name="theirs")
    condition = scene.until_condition("Registered", "False", "ForeignOwner", says="staging")
    assert re.search('tickkeeper.dev/adopt: "true"', condition["message"])
    before = scene.record(raw)
    scene.operator.after_sweeps(2)
    assert scene.record(raw) == before
    scene.annotate(adopt="true")
    scene.until_condition("Ready", "True")
    assert scene.stamp(raw)["cluster"] != "staging"


def test_another_clusters_scheduler_survives_the_deletion_of_ours(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    rewrite_stamp(scene, raw, cluster="staging", name="theirs")
    scene.until_condition("Registered", "False", "ForeignOwner")
    before = scene.record(raw)
    scene.delete()
    scene.until_gone()
    assert scene.record(raw) == before
    assert scene.score(raw) is not None


def test_a_recreated_resource_takes_its_own_scheduler_over(scene: Scene, raw: Redis) -> None:
    scene.create_ready(deletionPolicy="Retain")
    first = scene.stamp(raw)["uid"]
    scene.delete()
    scene.until_gone()
    scene.create_ready(everyMs=60_000, offsetMs=4)
    assert scene.stamp(raw)["uid"] not in (first, "")
    assert scene.record(raw)["every"] == "60000"
    assert raw.zcard(scene.key("delayed")) == 1
    assert scene.heals() == 0


def test_a_scheduler_of_another_type_is_told_and_not_touched(scene: Scene, raw: Redis) -> None:
    raw.set(scene.key("repeat"), "theirs")
    scene.create()
    condition = scene.until_condition("Registered", "False", "WrongType", seconds=5)
    assert scene.key("repeat") in condition["message"]
    scene.until_event("WrongType")
    scene.operator.after_sweeps(2)
    assert scene.left(raw) == {scene.key("repeat")}
    assert scene.heals() == 0
    raw.delete(scene.key("repeat"))
    scene.until_condition("Ready", "True")
    assert scene.heals() == 0
