"""RBAC: what the operator may do, and that it is all that it may do."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from kubernetes import client, config

from e2e.cluster import Cluster
from e2e.release import Release

# (group, resource, verb) for the operator in cluster mode with secretRefs, anywhere.
EVERYWHERE = {
    *(("tickkeeper.dev", "tickschedules", verb) for verb in ("get", "list", "watch", "patch")),
    ("tickkeeper.dev", "tickschedules/status", "patch"),
    ("", "events", "create"),
    ("", "secrets", "get"),
}
AT_HOME = {("coordination.k8s.io", "leases", "create")}


@pytest.fixture(scope="module")
def authorization(cluster: Cluster):
    with config.new_client_from_config(str(cluster.kubeconfig)) as api:
        yield client.AuthorizationV1Api(api)


def _allowed(
    authorization, account: str, namespace: str, asked: list[tuple[str, str, str]]
) -> set[tuple[str, str, str]]:
    def ask(each: tuple[str, str, str]) -> bool:
        group, resource, verb = each
        resource, _, sub = resource.partition("/")
        attributes = {"group": group, "resource": resource, "verb": verb, "namespace": namespace}
        if sub:
            attributes["subresource"] = sub
        review = authorization.create_subject_access_review(
            {"spec": {"user": account, "groups": _groups(account), "resourceAttributes": attributes}}
        )
        return bool(review.status.allowed)

    with ThreadPoolExecutor(8) as pool:
        return {each for each, yes in zip(asked, pool.map(ask, asked), strict=True) if yes}


def _groups(account: str) -> list[str]:
    return ["system:serviceaccounts", f"system:serviceaccounts:{account.split(':')[2]}", "system:authenticated"]


def _everything(cluster: Cluster) -> list[tuple[str, str, str]]:
    """Every verb on every resource that the API server knows."""
    found = []
    groups = {"": ["v1"]} | {
        group["name"]: [group["preferredVersion"]["version"]]
        for group in json.loads(cluster.kubectl("get", "--raw", "/apis"))["groups"]
    }
    for group, (version,) in groups.items():
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        for resource in json.loads(cluster.kubectl("get", "--raw", path))["resources"]:
            found += [(group, resource["name"], verb) for verb in resource["verbs"]]
    return found


def test_the_operator_may_do_what_it_needs_and_nothing_else(release: Release, cluster: Cluster, authorization):
    asked = _everything(cluster)
    assert set(asked) >= EVERYWHERE | AT_HOME
    operator = f"system:serviceaccount:{release.namespace}:{release.fullname}-operator"
    nobody = f"system:serviceaccount:{release.namespace}:nobody"
    for namespace, wanted in ((release.namespace, EVERYWHERE | AT_HOME), ("kube-public", EVERYWHERE)):
        given_to_all = _allowed(authorization, nobody, namespace, asked)
        assert _allowed(authorization, operator, namespace, asked) - given_to_all == wanted


@pytest.mark.parametrize(
    ("verb", "resource", "name", "allowed"),
    [
        ("get", "leases", "OWN", True),
        ("update", "leases", "OWN", True),
        ("patch", "leases", "OWN", False),
        ("delete", "leases", "OWN", False),
        ("get", "leases", "another", False),
        ("update", "leases", "another", False),
    ],
)
def test_the_operator_has_its_own_lease_only(
    release: Release, authorization, verb: str, resource: str, name: str, allowed: bool
):
    operator = f"system:serviceaccount:{release.namespace}:{release.fullname}-operator"
    attributes = {
        "group": "coordination.k8s.io",
        "resource": resource,
        "verb": verb,
        "name": name.replace("OWN", f"{release.fullname}-operator"),
        "namespace": release.namespace,
    }
    review = authorization.create_subject_access_review(
        {"spec": {"user": operator, "groups": _groups(operator), "resourceAttributes": attributes}}
    )
    assert bool(review.status.allowed) is allowed


@pytest.mark.parametrize(("name", "allowed"), [("kube-system", True), ("default", False)])
def test_the_operator_may_ask_for_the_clusters_identity(release: Release, authorization, name: str, allowed: bool):
    operator = f"system:serviceaccount:{release.namespace}:{release.fullname}-operator"
    attributes = {"group": "", "resource": "namespaces", "verb": "get", "name": name, "namespace": name}
    review = authorization.create_subject_access_review(
        {"spec": {"user": operator, "groups": _groups(operator), "resourceAttributes": attributes}}
    )
    assert bool(review.status.allowed) is allowed
