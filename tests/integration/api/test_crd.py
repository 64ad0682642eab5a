"""The CRD as a part of a cluster: no warning, columns, selectors, names, defaults, status, explanations."""

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from embedded.kubernetes import KubeApi
from tests.integration.api.conftest import CRD_FILE
from tests.unit.api.case import spec
from tickkeeper.api.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION, TickSchedule
from tickkeeper.api.status import TickScheduleStatus

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("tickschedule*.yaml"))
WHEN = "2026-02-03T12:00:00Z"


@pytest.fixture
def store(schedules: client.CustomObjectsApi, namespace: str):
    """Store a TickSchedule in the test's namespace."""

    def create(name: str, **changes: Any) -> dict[str, Any]:
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec(**changes)}
        return schedules.create_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, body)

    return create


def _table(kube_api: KubeApi, *args: str) -> list[list[str]]:
    """kubectl's table: the columns are two spaces apart at least."""
    lines = kube_api.kubectl("get", *args).splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def test_the_api_server_has_nothing_to_warn_of(kube_api: KubeApi, api_client: client.ApiClient):
    done = kube_api.try_kubectl(
        "apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", str(CRD_FILE)
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_condition_of_the_crd_complains(api_client: client.ApiClient):
    crd = client.ApiextensionsV1Api(api_client).read_custom_resource_definition(f"{PLURAL}.{GROUP}")
    conditions = {condition.type: condition.status for condition in crd.status.conditions}
    assert conditions.pop("NamesAccepted") == "True"
    assert conditions.pop("Established") == "True"
    assert "True" not in conditions.values(), "such as NonStructuralSchema"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_accepted_without_an_unknown_field(kube_api: KubeApi, api_client: client.ApiClient, path: Path):
    kube_api.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(path))


def test_defaults_are_stored(store):
    assert store("minimal")["spec"] == spec() | {
        "queueName": "ticks",
        "prefix": "bull",
        "suspend": False,
        "concurrencyPolicy": "Forbid",
        "deletionPolicy": "Delete",
    }
    assert store("nightly", everyMs=None, cron={"pattern": "0 3 * * *"})["spec"]["cron"] == {
        "pattern": "0 3 * * *",
        "timeZone": "UTC",
    }


def test_a_stored_resource_is_read(store, namespace: str):
    stored = store("drain", tenant="org:42")
    schedule = TickSchedule.parse(stored)
    assert schedule.metadata.name == "drain"
    assert schedule.metadata.namespace == namespace
    assert schedule.metadata.uid == stored["metadata"]["uid"]
    assert schedule.metadata.generation == 1
    assert schedule.metadata.creation_timestamp is not None
    assert schedule.metadata.creation_timestamp.tzinfo is not None
    assert schedule.spec.tenant == "org:42"


def _status() -> dict[str, Any]:
    def condition(kind: str, reason: str) -> dict[str, Any]:
        return {
            "type": kind,
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": WHEN,
            "reason": reason,
            "message": "",
        }

    return {
        "observedGeneration": 1,
        "registered": {
            "redis": "127.0.0.1:6379/0",
            "prefix": "bull",
            "queueName": "ticks",
            "schedulerId": "drain.acme",
            "time": WHEN,
        },
        "heals": 2,
        "lastHeal": {"time": WHEN, "reason": "Missing"},
        "conditions": [condition("Ready", "AllWell"), condition("Ticking", "Ticking")],
    }


def test_status_is_written_apart_from_the_spec(store, schedules: client.CustomObjectsApi, namespace: str):
    written = TickScheduleStatus.parse(_status())
    store("drain")
    patched = schedules.patch_namespaced_custom_object_status(
        GROUP, VERSION, namespace, PLURAL, "drain", {"status": written.to_wire(), "spec": {"tenant": "other"}}
    )
    assert patched["metadata"]["generation"] == 1
    assert patched["spec"]["tenant"] == "acme"
    assert patched["status"] == _status()
    assert TickSchedule.parse(patched).status == written


@pytest.mark.parametrize(
    ("field", "value"),
    [("heals", -1), ("conditions", [{"type": "Ready"}]), ("lastHeal", {"time": "now", "reason": "Missing"})],
)
def test_a_status_of_another_form_is_refused(
    store, schedules: client.CustomObjectsApi, namespace: str, field: str, value: Any
):
    store("drain")
    with pytest.raises(client.ApiException) as refused:
        schedules.patch_namespaced_custom_object_status(
            GROUP, VERSION, namespace, PLURAL, "drain", {"status": {field: value}}
        )
    assert f"status.{field}" in json.loads(refused.value.body)["message"]


def test_conditions_have_one_entry_a_type(store, schedules: client.CustomObjectsApi, namespace: str):
    store("drain")
    ready = _status()["conditions"][0]
    with pytest.raises(client.ApiException, match="Duplicate value"):
        schedules.patch_namespaced_custom_object_status(
            GROUP, VERSION, namespace, PLURAL, "drain", {"status": {"conditions": [ready, ready]}}
        )


def test_columns(kube_api: KubeApi, store, schedules: client.CustomObjectsApi, namespace: str):
    store("drain")
    store("nightly", everyMs=None, cron={"pattern": "0 3 * * *"}, tenant="zeta", queueName="night")
    schedules.patch_namespaced_custom_object_status(GROUP, VERSION, namespace, PLURAL, "drain", {"status": _status()})
    head, drain, nightly = _table(kube_api, PLURAL, "-n", namespace)
    assert head == ["NAME", "TENANT", "EVERY", "QUEUE", "READY", "TICKING", "REASON", "HEALS", "AGE"]
    assert drain[:-1] == ["drain", "acme", "5000", "ticks", "True", "True", "AllWell", "2"]
    assert nightly[:4] == ["nightly", "zeta", "0 3 * * *", "night"]


def test_wide_columns(kube_api: KubeApi, store, schedules: client.CustomObjectsApi, namespace: str):
    store("drain")
    schedules.patch_namespaced_custom_object_status(GROUP, VERSION, namespace, PLURAL, "drain", {"status": _status()})
    head, drain = _table(kube_api, PLURAL, "-n", namespace, "-o", "wide")
    assert head[-3:] == ["SCHEDULER", "LAST-HEAL", "AGE"]
    assert drain[-3] == "drain.acme"


@pytest.mark.parametrize("word", ["tick", "ticks", "tickschedule", "tickschedules", "tickkeeper"])
def test_short_names_and_category(kube_api: KubeApi, store, namespace: str, word: str):
    store("drain")
    assert kube_api.kubectl("get", word, "-n", namespace, "-o", "name").strip() == ("tickschedule.tickkeeper.dev/drain")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("spec.tenant=zeta", ["b"]),
        ("spec.queueName=night", ["b"]),
        ("spec.suspend=true", ["c"]),
        ("spec.suspend=false,spec.tenant=acme", ["a"]),
    ],
)
def test_selectors(store, schedules: client.CustomObjectsApi, namespace: str, selector: str, found: list[str]):
    store("a")
    store("b", tenant="zeta", queueName="night")
    store("c", suspend=True)
    listed = schedules.list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, field_selector=selector)
    assert [item["metadata"]["name"] for item in listed["items"]] == found


@pytest.mark.parametrize(
    "changes",
    [
        {"tenant": "other"},
        {"jobName": "other"},
        {"queueName": "other"},
        {"prefix": "other"},
        {"schedulerId": "other"},
        {"everyMs": None, "cron": {"pattern": "* * * * *"}},
        {"deletionPolicy": "Retain"},
        {"redis": {"secretRef": {"name": "other"}}},
    ],
    ids=lambda changes: "+".join(changes),
)
def test_every_field_may_change(store, schedules: client.CustomObjectsApi, namespace: str, changes: dict[str, Any]):
    store("drain")
    patched = schedules.patch_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, "drain", {"spec": changes})
    assert patched["metadata"]["generation"] == 2


def test_a_patch_is_judged_as_a_whole(store, schedules: client.CustomObjectsApi, namespace: str):
    store("drain")
    with pytest.raises(client.ApiException, match="exactly one of everyMs and cron, not both"):
        schedules.patch_namespaced_custom_object(
            GROUP, VERSION, namespace, PLURAL, "drain", {"spec": {"cron": {"pattern": "* * * * *"}}}
        )


@pytest.mark.parametrize("spec_of", [None, 5, "x", []], ids=repr)
def test_a_resource_needs_a_spec(schedules: client.CustomObjectsApi, spec_of: Any):
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "case"}, "spec": spec_of}
    with pytest.raises(client.ApiException) as refused:
        schedules.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, body, dry_run="All")
    assert "spec" in json.loads(refused.value.body)["message"]


def test_kubectl_explains_a_field(kube_api: KubeApi, api_client: client.ApiClient):
    explained = kube_api.kubectl("explain", "tickschedule.spec.everyMs")
    assert "everyMs <integer>" in explained
    assert "The interval between two ticks in milliseconds" in explained


def test_kubectl_explains_defaults(kube_api: KubeApi, api_client: client.ApiClient):
    explained = " ".join(kube_api.kubectl("explain", "ticks.spec").split())
    assert "Default: ticks." in explained
    assert "Default: bull." in explained
    assert "Default: Forbid." in explained
