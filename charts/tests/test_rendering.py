"""What the chart makes of values."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tests import helm
from charts.tests.helm import case, one, pod_templates, render
from charts.tools.values import CHART
from tickkeeper.controller.settings import OperatorSettings
from tickkeeper.outbox.mnemora.store import DEFAULT_SCHEMA as MNEMORA_SCHEMA
from tickkeeper.outbox.mnemora.store import MnemoraOutbox
from tickkeeper.schedules.allow import AllowList
from tickkeeper.worker.process import build_sampler, build_store
from tickkeeper.worker.settings import WorkerSettings

CRD_FILE = Path(__file__).parents[2] / "crds" / "tickkeeper.dev_tickschedules.yaml"
EVERY = pytest.mark.parametrize("name", helm.CASES)


@EVERY
def test_lint_has_nothing_to_say(name: str) -> None:
    said = helm.with_values("lint", case(name), "--strict")
    assert "[WARNING]" not in said
    assert "[ERROR]" not in said


@EVERY
def test_pods_are_restricted(name: str) -> None:
    for where, pod in pod_templates(render(case(name))):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, where
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, where


@EVERY
def test_everything_that_runs_has_bounds_and_common_labels(name: str) -> None:
    objects = render(case(name))
    for where, pod in pod_templates(objects):
        for container in pod["spec"]["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, where
            assert "memory" in container["resources"]["limits"], where
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "tickkeeper", each["metadata"]["name"]
        assert labels["app.kubernetes.io/instance"] == "t", each["metadata"]["name"]


@EVERY
def test_selectors_find_their_own_pods_only(name: str) -> None:
    objects = render(case(name))
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    labels = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in deployments}

    def found(selector: dict[str, str]) -> set[str]:
        return {name for name, has in labels.items() if selector.items() <= has.items()}

    for each in deployments:
        assert found(each["spec"]["selector"]["matchLabels"]) == {each["metadata"]["name"]}
    for each in objects:
        if each["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            spec = each["spec"]
            selector = spec.get("podSelector", spec.get("selector"))
            wanted = {"t-tickkeeper-worker-mail", "t-tickkeeper-worker-code", "t-tickkeeper-worker-default"}
            selected = found(selector.get("matchLabels", selector))
            if each["metadata"]["name"].endswith("-workers"):
                assert selected == wanted & labels.keys()
            else:
                assert selected == {each["metadata"]["name"]}


@EVERY
def test_no_drain_is_held_up_for_ever(name: str) -> None:
    for each in render(case(name)):
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["maxUnavailable"] == 1
            assert "minAvailable" not in each["spec"]


@EVERY
def test_variables_are_settings_that_exist(name: str) -> None:
    known = {f"TICKKEEPER_{field.upper()}" for field in (OperatorSettings.model_fields | WorkerSettings.model_fields)}
    # Read by the command line; the store's by workers with another outbox.
    known |= {"TICKKEEPER_DATABASE_URL", "TICKKEEPER_DATABASE_SCHEMA", "TICKKEEPER_STORE"}
    for where, pod in pod_templates(render(case(name))):
        for container in pod["spec"]["containers"]:
            names = [each["name"] for each in container.get("env", [])]
            assert len(names) == len(set(names)), where
            assert {name for name in names if name.startswith("TICKKEEPER_")} <= known, where


def test_no_password_is_outside_of_secrets() -> None:
    objects = render(case("given"))
    secrets = json.dumps([each for each in objects if each["kind"] == "Secret"])
    others = json.dumps([each for each in objects if each["kind"] != "Secret"])
    for password in ("given-redis-password", "given-postgres-password"):
        assert password in secrets
        assert password not in others
    annotations = one(objects, "Deployment", "t-tickkeeper-operator")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["tickkeeper.dev/release-revision"] == "1"


def test_the_trials_passwords_are_drawn() -> None:
    passwords = [
        one(render(case("trial")), "Secret", f"t-tickkeeper-{part}")["stringData"]["password"]
        for part in ("redis", "database", "redis")
    ]
    assert len(set(passwords)) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9]{32}", password) for password in passwords)


def test_the_crd_is_that_of_the_project() -> None:
    assert (CHART / "files" / "tickschedules.crd.yaml").read_text() == CRD_FILE.read_text(), "run: make chart-docs"
    rendered = one(render(case("trial")), "CustomResourceDefinition", "tickschedules.tickkeeper.dev")
    assert rendered["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    project = yaml.safe_load(CRD_FILE.read_text())
    assert rendered["spec"] == project["spec"]
    assert rendered["metadata"]["name"] == project["metadata"]["name"]


def test_the_crd_can_be_let_go_or_left_out() -> None:
    given = case("trial")
    rendered = one(
        render(given | {"crds": {"keep": False}}), "CustomResourceDefinition", "tickschedules.tickkeeper.dev"
    )
    assert "helm.sh/resource-policy" not in rendered["metadata"]["annotations"]
    assert not [each for each in render(given | {"crds": {"enabled": False}}) if each["kind"].startswith("Custom")]


def test_namespaced_mode_makes_nothing_cluster_wide() -> None:
    objects = render(case("namespaced"))
    assert not [each["kind"] for each in objects if each["kind"].startswith("Cluster")]
    roles = [
        each for each in objects if each["kind"] == "Role" and each["metadata"]["name"] == "tk-t-tickkeeper-operator"
    ]
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    env = _env(objects, "t-tickkeeper-operator")
    assert env["TICKKEEPER_NAMESPACES"]["value"] == "team-a,team-b"
    assert env["TICKKEEPER_REDIS_URL"]["value"] == "redis://redis:6379/0"


@pytest.mark.parametrize(("name", "may"), [("trial", False), ("external", True)])
def test_secrets_are_read_only_where_secretrefs_are_on(name: str, may: bool) -> None:
    rules = one(render(case(name)), "ClusterRole", "tk-t-tickkeeper-operator")["rules"]
    assert any("secrets" in rule["resources"] for rule in rules) is may
    assert [rule["verbs"] for rule in rules if "secrets" in rule["resources"]] == [["get"]] * may


def test_no_role_has_a_wildcard() -> None:
    for name in helm.CASES:
        for each in render(case(name)):
            for rule in each.get("rules") or []:
                assert "*" not in json.dumps(rule)


def test_the_allow_list_is_one_that_the_operator_reads() -> None:
    config = one(render(case("external")), "ConfigMap", "t-tickkeeper-operator-allow")
    read = AllowList.model_validate(yaml.safe_load(config["data"]["allow.yaml"]))
    assert read.redis_hosts == ("*.redis.svc",)
    assert read.rules[0].queue_names == ("a-*",)


def test_a_pool_takes_what_it_does_not_say_from_the_defaults() -> None:
    objects = render(
        case("trial")
        | {"workerDefaults": {"replicas": 3, "queues": ["d"]}, "workers": [{"name": "a"}, {"name": "b", "replicas": 0}]}
    )
    assert one(objects, "Deployment", "t-tickkeeper-worker-a")["spec"]["replicas"] == 3
    assert one(objects, "Deployment", "t-tickkeeper-worker-b")["spec"]["replicas"] == 0
    assert _env(objects, "t-tickkeeper-worker-b")["TICKKEEPER_QUEUES"]["value"] == "d"


def test_a_pools_own_redis_and_postgres_replace_those_of_the_release() -> None:
    env = _env(render(case("external")), "t-tickkeeper-worker-code")
    assert env["TICKKEEPER_REDIS_URL"]["value"] == "redis://other:6379/0"
    assert "TICKKEEPER_REDIS_PASSWORD" not in env
    assert env["TICKKEEPER_DATABASE_URL"]["valueFrom"]["secretKeyRef"] == {"name": "other-postgres", "key": "url"}
    assert env["TICKKEEPER_STORE"]["value"] == "mnemora"
    image = one(render(case("external")), "Deployment", "t-tickkeeper-worker-code")["spec"]["template"]["spec"]
    assert image["containers"][0]["image"] == "registry.example.org/handlers:7"


def test_another_stores_schema_is_its_own_unless_the_pool_says() -> None:
    theirs = {"name": "c", "store": "mnemora", "database": {"schema": "theirs"}}
    pools = [{"name": "a"}, {"name": "b", "store": "mnemora"}, theirs]
    objects = render(case("trial") | {"database": {"schema": "ours"}, "workers": pools})
    schemas = [_env(objects, f"t-tickkeeper-worker-{name}").get("TICKKEEPER_DATABASE_SCHEMA") for name in "abc"]
    assert [each and each["value"] for each in schemas] == ["ours", None, "theirs"]


def test_a_pool_of_mnemoras_is_given_what_its_worker_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [{"name": "a", "store": "mnemora"}, {"name": "b", "store": "mnemora", "database": {"schema": "theirs"}}]
    values = {"redis": {"url": "redis://r"}, "database": {"url": "postgresql://p", "schema": "ours"}, "workers": pools}
    objects = render(values)
    for name, schema in (("a", MNEMORA_SCHEMA), ("b", "theirs")):
        with monkeypatch.context() as patch:
            for variable, each in _env(objects, f"t-tickkeeper-worker-{name}").items():
                if (value := _value(objects, each)) is not None:
                    patch.setenv(variable, value)
            settings = WorkerSettings()
        assert isinstance(build_store(settings), MnemoraOutbox)
        assert settings.schema_name == schema
        # The store's own: what peers judge our claims by.
        assert settings.limits().lease is None
        assert build_sampler(settings) is None


def test_dead_rows_block_their_keys_where_there_are_keys() -> None:
    pools = [{"name": "a"}, {"name": "b", "deadHeads": "skip"}, {"name": "c", "store": "mnemora"}]
    objects = render(case("trial") | {"workerDefaults": {"deadHeads": "block"}, "workers": pools})
    given = [_env(objects, f"t-tickkeeper-worker-{name}").get("TICKKEEPER_DEAD_HEADS") for name in "abc"]
    assert [each and each["value"] for each in given] == ["block", None, None]


@pytest.mark.parametrize(
    ("stores", "migrates"),
    [([], True), (["tickkeeper"], True), (["mnemora", "tickkeeper"], True), (["mnemora", "mnemora"], False)],
)
def test_only_our_own_outbox_is_migrated(stores: list[str], migrates: bool) -> None:
    pools = [{"name": f"p{number}", "store": store} for number, store in enumerate(stores)]
    for database in ({"database": {"url": "postgresql://p"}}, {"trial": {"postgres": {"enabled": True}}}):
        values = {"redis": {"url": "redis://r"}, "workers": pools} | database
        names = {each["metadata"]["name"].rpartition("-migrate")[0] for each in render(values) if each["kind"] == "Job"}
        assert ("t-tickkeeper" in names) is migrates
    # Also where the defaults of all pools say so.
    values = {"redis": {"url": "redis://r"}, "database": {"url": "postgresql://p"}, "workers": [{"name": "a"}]}
    objects = render(values | {"workerDefaults": {"store": "mnemora"}})
    assert not [each for each in objects if "-migrate" in each["metadata"]["name"]]


def test_an_autoscaled_pool_has_no_replicas_of_its_own() -> None:
    objects = render(case("external"))
    assert "replicas" not in one(objects, "Deployment", "t-tickkeeper-worker-mail")["spec"]
    assert one(objects, "HorizontalPodAutoscaler", "t-tickkeeper-worker-mail")["spec"]["minReplicas"] == 2


def test_the_kubelet_waits_longer_than_the_program() -> None:
    for where, pod in pod_templates(render(case("external"))):
        for container in pod["spec"]["containers"]:
            for each in container.get("env", []):
                if each["name"] == "TICKKEEPER_GRACE_SECONDS":
                    assert pod["spec"]["terminationGracePeriodSeconds"] > float(each["value"]), where


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({}, "No Redis is configured"),
        ({"redis": {"url": "redis://a"}, "trial": {"redis": {"enabled": True}}}, "only one Redis"),
        ({"redis": {"url": "redis://a"}, "watchNamespaces": ["a"]}, "clusterId is required"),
        ({"redis": {"url": "redis://:p@a", "existingSecret": "s"}}, "has credentials in it"),
        ({"redis": {"url": "rediss://a", "tls": {"ca": True}}}, r"redis\.existingSecret, which is not set"),
        ({"redis": {"url": "redis://a"}, "workers": [{"name": "a"}]}, "has no Postgres"),
        ({"secretRefs": {"enabled": True}, "workers": [{"name": "a"}]}, "has no Redis"),
        (case("trial") | {"workers": [{"name": "a"}, {"name": "a"}]}, "another pool has this name"),
        (
            case("trial") | {"workers": [{"name": "a", "redis": {"url": "redis://u:p@h"}}]},
            r"redis\.url has credentials in it",
        ),
        (
            {"redis": {"url": "redis://a"}, "database": {"url": "postgresql://a", "existingSecret": "b"}},
            "give only one of them",
        ),
    ],
)
def test_values_that_do_not_fit_together_are_refused_with_the_remedy(values: dict[str, Any], rule: str) -> None:
    with pytest.raises(helm.Refused, match=rule):
        render(values)


def test_notes_say_what_to_do_next() -> None:
    said = helm.with_values("install", case("trial"), "--dry-run=client", "t", "--namespace", helm.NAMESPACE)
    notes = said.partition("NOTES:")[2]
    assert "helm test t --namespace tk --logs" in notes
    assert "Never use them in production" in notes
    assert "FROM tickkeeper.enqueue(" in notes
    mnemoras = case("trial") | {"workers": [{"name": "a", "store": "mnemora"}]}
    said = helm.with_values("install", mnemoras, "--dry-run=client", "t", "--namespace", helm.NAMESPACE)
    assert ".enqueue(" not in said.partition("NOTES:")[2]


def _env(objects: list[helm.Object], deployment: str) -> dict[str, Any]:
    container = one(objects, "Deployment", deployment)["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each for each in container["env"]}


def _value(objects: list[helm.Object], variable: dict[str, Any]) -> str | None:
    """What a pod sees: given, or out of a Secret of the release."""
    if "value" in variable:
        return str(variable["value"])
    reference = variable["valueFrom"]["secretKeyRef"]
    found: str | None = one(objects, "Secret", reference["name"])["stringData"].get(reference["key"])
    assert found is not None or reference.get("optional"), variable
    return found
