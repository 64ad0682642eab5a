"""The release makes room for one that watches two namespaces only and has no cluster role."""

import base64

import pytest

from e2e import own_redis
from e2e.access import AT_HOME, IN_A_NAMESPACE, Access
from e2e.cluster import Cluster
from e2e.release import Release
from e2e.schedules import Schedules
from e2e.settings import CHART, Settings
from embedded.process import wait_for


@pytest.fixture(scope="module")
def team(release: Release, cluster: Cluster, settings: Settings) -> Schedules:
    """A release in namespace team-a, for team-a alone, with a Redis by an existing Secret."""
    release.uninstall()
    cluster.kubectl("delete", "namespace", release.namespace, "--timeout=120s", seconds=150)
    for namespace in ("team-a", "team-b"):
        cluster.kubectl("create", "namespace", namespace)
    redis = own_redis.OwnRedis(cluster, "team-a", settings)
    redis.create(password="of-the-team")
    cluster.helm(
        *("install", "team", str(CHART), "-n", "team-a", "--wait", "--timeout", "180s"),
        *("--set", f"image.repository={release.values['image']['repository']}"),
        *("--set", f"image.tag={release.values['image']['tag']}"),
        *("--set", "crds.enabled=false,rbac.aggregate=false,clusterId=team-a,watchNamespaces={team-a}"),
        *("--set", f"redis.existingSecret={redis.secret}"),
    )
    return Schedules(cluster, "team-a")


def test_the_chart_test_passes_there(team: Schedules, cluster: Cluster) -> None:
    assert "passed" in cluster.helm("test", "team", "-n", "team-a", "--logs", "--timeout", "150s")


def test_no_cluster_role_was_made(team: Schedules, cluster: Cluster) -> None:
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies"
    assert cluster.kubectl("get", kinds, "-l", "app.kubernetes.io/part-of=tickkeeper", "-o", "name") == ""


def test_its_operator_may_do_nothing_elsewhere(team: Schedules, access: Access) -> None:
    operator = "system:serviceaccount:team-a:team-tickkeeper-operator"
    # No Secrets: secretRefs are off.
    assert access.given(operator, "team-a") == IN_A_NAMESPACE | AT_HOME
    assert access.given(operator, "team-b") == set()
    assert not access.may(operator, group="", resource="namespaces", verb="get", name="kube-system")


def test_other_namespaces_are_left_alone(team: Schedules, cluster: Cluster) -> None:
    Schedules(cluster, "team-b").apply("theirs")
    team.apply("ours")
    team.wait_until("ours", "Registered", "True")
    assert Schedules(cluster, "team-b").status("theirs") == {}


def test_the_secret_is_where_the_password_stays(team: Schedules, cluster: Cluster) -> None:
    shown = cluster.kubectl(
        "get", "deployments,pods,configmaps,events", "-n", "team-a", "-l", "app!=redis", "-o", "yaml"
    )
    assert "of-the-team" not in shown
    assert base64.b64encode(b"of-the-team").decode() not in shown


def test_its_uninstall_frees_its_namespace(team: Schedules, cluster: Cluster) -> None:
    cluster.helm("uninstall", "team", "-n", "team-a", "--timeout", "180s")
    for namespace in ("team-a", "team-b"):
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    for namespace in ("team-a", "team-b"):
        wait_for(
            lambda name=namespace: cluster.get("namespace", name) is None,  # type: ignore[misc]
            seconds=120,
            what=f"{namespace} is gone",
            interval=0.5,
        )
