"""From ``kubectl apply`` to a scheduler in Redis, a status and events; edits, suspension, pausing."""

import json

from redis import Redis

from tests.integration.controller.scene import HOUR, Scene


def test_an_applied_schedule_is_registered_and_its_status_says_all_of_it(scene: Scene, raw: Redis) -> None:
    body = scene.create(data={"region": "eu"})
    scene.until_condition("Ready", "True", "Ready")
    body = scene.get()
    meta, status = body["metadata"], body["status"]

    assert meta["finalizers"] == ["tickkeeper.dev/scheduler"]
    assert status["observedGeneration"] == meta["generation"] == 1
    registered = status["registered"]
    assert registered.pop("time").endswith("Z")
    assert registered == {
        "redis": f"redis://127.0.0.1:{scene.server.port}/0",
        "prefix": scene.prefix,
        "queueName": "ticks",
        "schedulerId": "drain.acme",
    }
    assert status["heals"] == 0
    assert "lastHeal" not in status
    assert "phase" not in status
    told = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert told == {
        "Ready": ("True", "Ready"),
        "Registered": ("True", "Registered"),
        "Ticking": ("Unknown", "AwaitingFirstTick"),
        "RedisSafe": ("True", "NoEviction"),
        "Suspended": ("False", "NotSuspended"),
        "ReferencesResolved": ("True", "Resolved"),
    }
    assert all(each["observedGeneration"] == 1 for each in status["conditions"])

    record = scene.record(raw)
    assert (record["name"], record["every"], record["offset"]) == ("drain", str(HOUR), str(body["spec"]["offsetMs"]))
    data = json.loads(record["data"])
    assert (data["tenantId"], data["region"]) == ("acme", "eu")
    stamp = data["tickkeeper"]
    kube_system = scene.cluster.core.read_namespace("kube-system").metadata.uid
    assert stamp["cluster"] == kube_system
    assert (stamp["namespace"], stamp["name"], stamp["uid"]) == (scene.namespace, "acme", meta["uid"])
    assert (stamp["generation"], stamp["deletionPolicy"]) == (1, "Delete")
    opts = json.loads(record["opts"])
    assert opts["removeOnComplete"] == {"count": 100, "age": 86_400}
    assert opts["removeOnFail"] == {"count": 1000, "age": 604_800}
    assert opts["attempts"] == 1
    assert raw.hget(scene.key("meta"), "opts.maxLenEvents") == "1000"
    assert raw.zcard(scene.key("delayed")) == 1

    event = scene.until_event("Registered")
    assert (event.type, event.name) == ("Normal", "acme")
    assert "drain.acme" in event.message
    assert [each.reason for each in scene.events()] == ["Registered"]


def test_kubectl_waits_for_ready_and_again_after_a_change(scene: Scene, raw: Redis) -> None:
    kubectl = scene.cluster.server.kubectl
    manifest = {
        "apiVersion": "tickkeeper.dev/v1alpha1",
        "kind": "TickSchedule",
        "metadata": {"name": "acme", "namespace": scene.namespace},
        "spec": scene.spec(),
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    wait = ("wait", "-n", scene.namespace, "tick/acme", "--for=condition=Ready", "--timeout=20s")
    kubectl(*wait)
    assert scene.score(raw) is not None
    manifest["spec"] = scene.spec(everyMs=60_000, offsetMs=7)
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    # kubectl knows of no generation: without the operator's own, Ready would be that of the old spec.
    kubectl(*wait, "--for=jsonpath={.status.observedGeneration}=2")
    scene.until_condition("Ready", "True", seconds=1)
    assert scene.record(raw)["every"] == "60000"
    columns = kubectl("get", "tick", "acme", "-n", scene.namespace).splitlines()[1].split()
    assert columns[:5] == ["acme", "acme", "60000", "ticks", "True"]


def test_an_edit_is_registered_without_a_heal_or_a_drift(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.patch(everyMs=3000, offsetMs=1, data={"v": "2"})
    scene.until_condition("Ready", "True")
    record = scene.record(raw)
    assert (record["every"], json.loads(record["data"])["v"]) == ("3000", "2")
    assert json.loads(record["data"])["tickkeeper"]["generation"] == 2
    assert raw.zcard(scene.key("delayed")) == 1
    scene.operator.after_sweeps(1)
    assert scene.heals() == 0
    assert {each.reason for each in scene.events()} == {"Registered"}


def test_two_tenants_of_one_job_name_have_a_scheduler_each(scene: Scene, raw: Redis) -> None:
    scene.create_ready("acme")
    scene.create_ready("beta", tenant="beta", everyMs=60_000, offsetMs=3)
    assert set(raw.zrange(scene.key("repeat"), 0, -1)) == {"drain.acme", "drain.beta"}
    assert scene.record(raw, "drain.acme")["every"] == str(HOUR)
    assert scene.record(raw, "drain.beta")["every"] == "60000"


def test_a_cron_schedule_is_registered_and_stays_as_it_is(scene: Scene, raw: Redis) -> None:
    body = scene.create_ready(everyMs=None, offsetMs=None, cron={"pattern": "30 2 * * *", "timeZone": "Asia/Tokyo"})
    record = scene.record(raw)
    assert (record["pattern"], record["tz"]) == ("30 2 * * *", "Asia/Tokyo")
    scene.operator.after_sweeps(2)
    assert scene.heals() == 0
    assert scene.get()["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]


def test_every_and_cron_change_into_each_other(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.patch(everyMs=None, offsetMs=None, cron={"pattern": "30 2 * * *"})
    scene.until_condition("Ready", "True")
    assert scene.record(raw)["pattern"] == "30 2 * * *"
    assert "every" not in scene.record(raw)
    scene.patch(everyMs=60_000, cron=None)
    scene.until_condition("Ready", "True")
    assert scene.record(raw)["every"] == "60000"
    assert "pattern" not in scene.record(raw)
    assert raw.zcard(scene.key("delayed")) == 1
    assert scene.heals() == 0


def test_suspend_removes_the_scheduler_and_ready_stays_true(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.patch(suspend=True)
    scene.until_condition("Suspended", "True", "Suspended")
    assert scene.holds("Ready", "True", "Suspended")
    assert scene.holds("Registered", "False", "Suspended")
    assert scene.holds("Ticking", "False", "Suspended")
    assert "registered" not in scene.status()
    assert scene.left(raw) == set()
    assert scene.finalized()
    scene.until_event("Removed")

    scene.patch(suspend=False)
    scene.until_condition("Registered", "True")
    assert scene.holds("Ready", "True", "Ready")
    assert scene.score(raw) is not None
    assert scene.heals() == 0


def test_a_schedule_that_begins_suspended_is_ready_and_not_registered(scene: Scene, raw: Redis) -> None:
    scene.create(suspend=True)
    scene.until_condition("Ready", "True", "Suspended")
    assert scene.left(raw) == set()
    assert scene.events("Removed") == []


def test_paused_keeps_hands_off_until_the_annotation_is_gone(scene: Scene, raw: Redis) -> None:
    scene.create_ready()
    scene.create_ready("other", tenant="other")  # keeps the operator looking at this queue
    scene.annotate(paused="true")
    scene.until_condition("Registered", "False", "OperatorPaused")
    scene.until_event("OperatorPaused")
    raw.zrem(scene.key("repeat"), "drain.acme")
    scene.patch(everyMs=60_000, offsetMs=9)
    scene.until_condition("Registered", "False", "OperatorPaused")
    scene.operator.after_sweeps(2)
    assert scene.score(raw) is None
    assert scene.record(raw)["every"] == str(HOUR)

    scene.annotate(paused=None)
    scene.until_condition("Ready", "True")
    assert scene.score(raw) is not None
    assert scene.record(raw)["every"] == "60000"


def test_foreign_finalizers_labels_and_annotations_are_kept(scene: Scene) -> None:
    body = scene.create()
    scene._patch("acme", {"metadata": {"finalizers": ["example.com/other"], "labels": {"team": "a"}}})
    scene.until(scene.finalized, what="our finalizer beside theirs")
    scene.annotate(note="kept")
    scene.until_condition("Ready", "True")
    meta = scene.get()["metadata"]
    assert set(meta["finalizers"]) == {"example.com/other", "tickkeeper.dev/scheduler"}
    assert meta["labels"] == {"team": "a"}
    assert set(meta["annotations"]) == {"tickkeeper.dev/note"}
    scene.delete()
    scene.until(lambda: not scene.finalized(), what="our finalizer is off")
    assert scene.get()["metadata"]["finalizers"] == ["example.com/other"]
    assert body["metadata"]["uid"] == scene.get()["metadata"]["uid"]
