"""Resources that the present CRD would refuse, stored by an older or a laxer one: told, never a crash.

They are stored while the CRD has no validations; then it is put back as it is. An API server of this module alone.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from redis import Redis

from embedded.kubernetes import KubeApi
from embedded.process import wait_for
from tests.integration.controller.conftest import CRD_FILE, serve
from tests.integration.controller.scene import Cluster, Scene


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with KubeApi() as server, config.new_client_from_config(str(server.kubeconfig)) as api:
        yield serve(server, api)


def lax() -> str:
    """The CRD without any validation."""
    crd = yaml.safe_load(CRD_FILE.read_text())
    for version in crd["spec"]["versions"]:
        version.pop("selectableFields", None)
        version["schema"]["openAPIV3Schema"] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
    return json.dumps(crd)


class Lax:
    """Stores what the CRD would refuse."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._kubectl = scene.cluster.server.kubectl

    def store(self, name: str = "acme", status: Any = None, **spec: Any) -> None:
        """Replace the CRD, store, put the CRD back."""
        self._kubectl("replace", "-f", "-", stdin=lax())
        self._until_checked(name, checked=False)
        body = self._scene.find(name)
        if body is None:
            self._scene.create(name, **spec)
        else:
            self._scene.patch(name, **spec)
        if status is not None:
            self._scene.cluster.schedules.patch_namespaced_custom_object_status(
                "tickkeeper.dev", "v1alpha1", self._scene.namespace, "tickschedules", name, {"status": status}
            )
        self._kubectl("replace", "-f", str(CRD_FILE))
        self._until_checked(name, checked=True)

    def _until_checked(self, name: str, *, checked: bool) -> None:
        def refused() -> bool:
            body = {
                "apiVersion": "tickkeeper.dev/v1alpha1",
                "kind": "TickSchedule",
                "metadata": {"name": f"{name}-probe"},
                "spec": {},
            }
            try:
                self._scene.cluster.schedules.create_namespaced_custom_object(
                    "tickkeeper.dev", "v1alpha1", self._scene.namespace, "tickschedules", body, dry_run="All"
                )
            except client.ApiException as error:
                if error.status not in (404, 422):
                    raise
                return error.status == 422
            return False

        wait_for(lambda: refused() is checked, seconds=30, what="the CRD is served as it is now")


@pytest.fixture
def stored(scene: Scene) -> Lax:
    return Lax(scene)


BAD = {
    "everyMs is text": ({"everyMs": "100"}, "spec.everyMs"),
    "everyMs too small": ({"everyMs": 9}, "spec.everyMs"),
    "everyMs negative": ({"everyMs": -5, "offsetMs": None}, "spec.everyMs"),
    "everyMs broken": ({"everyMs": 1.5}, "spec.everyMs"),
    "both": ({"cron": {"pattern": "* * * * *"}}, "exactly one of everyMs and cron"),
    "neither": ({"everyMs": None, "offsetMs": None}, "exactly one of everyMs and cron"),
    "bad cron": ({"everyMs": None, "offsetMs": None, "cron": {"pattern": "61 * * * *"}}, "spec.cron.pattern"),
    "never fires": ({"everyMs": None, "offsetMs": None, "cron": {"pattern": "0 0 31 2 *"}}, "spec.cron.pattern"),
    "random cron": ({"everyMs": None, "offsetMs": None, "cron": {"pattern": "R * * * *"}}, "spec.cron.pattern"),
    "no zone": (
        {"everyMs": None, "offsetMs": None, "cron": {"pattern": "* * * * *", "timeZone": "Mars/Olympus"}},
        "spec.cron.timeZone",
    ),
    "queue with colon": ({"queueName": "a:b"}, "spec.queueName"),
    "five parts": ({"schedulerId": "a:b:c:d:e"}, "spec.schedulerId"),
    "ends in digits": ({"schedulerId": "a:123"}, "spec.schedulerId"),
    "no job name": ({"jobName": ""}, "spec.jobName"),
    "newline": ({"tenant": "a\nb"}, "spec.tenant"),
    "large data": ({"data": {"a": "x" * 20_000}}, "spec.data"),
    "reserved data": ({"data": {"tenantId": "evil"}}, "tenantId"),
    "no object": ({"tick": [1]}, "spec.tick"),
}


def test_what_the_crd_would_refuse_is_invalid_and_nothing_is_written(scene: Scene, stored: Lax, raw: Redis) -> None:
    # One change of the CRD for all of them: each takes a second to be served.
    kubectl = scene.cluster.server.kubectl
    kubectl("replace", "-f", "-", stdin=lax())
    stored._until_checked("acme", checked=False)
    names = {f"bad-{number}": case for number, case in enumerate(BAD)}
    for name, case in names.items():
        scene.create(name, **BAD[case][0])
    kubectl("replace", "-f", str(CRD_FILE))
    stored._until_checked("acme", checked=True)
    scene.create_ready("good", jobName="good")
    told = {case: scene.until_condition("Ready", "False", "InvalidSpec", name=name) for name, case in names.items()}
    assert {case: BAD[case][1] in condition["message"] for case, condition in told.items()} == dict.fromkeys(BAD, True)
    for name in names:
        assert scene.holds("Registered", "False", "InvalidSpec", name=name)
        assert "registered" not in scene.status(name)
    assert {key for key in scene.left(raw) if ":repeat:" in key and "good.acme" not in key} == set()
    assert raw.zrange(scene.key("repeat"), 0, -1) == ["good.acme"]
    assert scene.until_event("InvalidSpec").type == "Warning"
    for name in names:
        scene.delete(name)
        scene.until_gone(name)
    assert raw.zrange(scene.key("repeat"), 0, -1) == ["good.acme"]


def test_what_the_api_server_lets_nobody_write_is_told_by_an_event(scene: Scene, stored: Lax, raw: Redis) -> None:
    # A value of another type in a map: the API server refuses every later write of the object, its status too.
    stored.store(data={"a": {"b": 1}})
    event = scene.until_event("InvalidSpec", r"spec\.data\.a")
    assert event.type == "Warning"
    scene.create_ready("good", jobName="good")
    assert raw.zrange(scene.key("repeat"), 0, -1) == ["good.acme"]
    scene.delete()
    scene.until_gone()


def test_unknown_fields_are_ignored(scene: Scene, stored: Lax, raw: Redis) -> None:
    stored.store(fromNewerVersion={"a": [1]}, tick={"batchSize": 5, "colour": "red"}, concurrencyPolicy="Allow")
    scene.until_condition("Ready", "True")
    stamp = scene.stamp(raw)
    assert (stamp["tick"], stamp["concurrencyPolicy"]) == ({"batchSize": 5}, "Allow")


def test_a_status_of_another_form_is_replaced(scene: Scene, stored: Lax, raw: Redis) -> None:
    stored.store(status={"heals": "many", "conditions": [5, {"type": "Ready"}], "registered": "yes", "phase": "Old"})
    scene.until_condition("Ready", "True")
    scene.until(lambda: scene.status().get("heals") == 0)
    assert scene.status()["registered"]["schedulerId"] == "drain.acme"


def test_what_was_registered_stays_while_the_spec_is_invalid_and_goes_with_the_resource(
    scene: Scene, stored: Lax, raw: Redis
) -> None:
    scene.create_ready()
    before = scene.record(raw)
    stored.store(everyMs=5)
    scene.until_condition("Ready", "False", "InvalidSpec", says="spec.everyMs")
    assert scene.record(raw) == before, "the last valid spec goes on ticking"
    assert scene.status()["registered"]["schedulerId"] == "drain.acme"
    scene.delete()
    scene.until_gone()
    assert scene.left(raw) == set()


def test_an_invalid_spec_that_is_mended_is_registered(scene: Scene, stored: Lax, raw: Redis) -> None:
    stored.store(everyMs=5)
    scene.until_condition("Ready", "False", "InvalidSpec")
    scene.patch(everyMs=60_000, offsetMs=1)
    scene.until_condition("Ready", "True")
    assert scene.record(raw)["every"] == "60000"
    assert scene.heals() == 0
