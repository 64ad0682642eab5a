"""RBAC: what the operator may do, and that it is all that it may do."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes import client, config

from e2e.cluster import Cluster
from e2e.release import Release

Verb = tuple[str, str, str]

# (group, resource, verb) for the operator in cluster mode with secretRefs, anywhere.
EVERYWHERE: set[Verb] = {
    *(("tickkeeper.dev", "tickschedules", verb) for verb in ("get", "list", "watch", "patch")),
    ("tickkeeper.dev", "tickschedules/status", "patch"),
    ("", "events", "create"),
    ("", "secrets", "get"),
    *(("apiextensions.k8s.io", "customresourcedefinitions", verb) for verb in ("list", "watch")),
}
AT_HOME: set[Verb] = {("coordination.k8s.io", "leases", "create")}


class Access:
    """What the API server's authorizers say."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api: Any = client.AuthorizationV1Api(api)

    def may(self, account: str, **attributes: str) -> bool:
        """Whether an account may do one thing."""
        review = {"spec": {"user": account, "groups": _groups(account), "resourceAttributes": attributes}}
        return bool(self._api.create_subject_access_review(review).status.allowed)

    def allowed(self, account: str, namespace: str, asked: list[Verb]) -> set[Verb]:
        """Which of many things it may do in a namespace."""

        def ask(each: Verb) -> bool:
            group, resource, verb = each
            resource, _, sub = resource.partition("/")
            return self.may(account, group=group, resource=resource, subresource=sub, verb=verb, namespace=namespace)

        with ThreadPoolExecutor(8) as pool:
            return {each for each, yes in zip(asked, pool.map(ask, asked), strict=True) if yes}


@pytest.fixture(scope="module")
def access(cluster: Cluster) -> Iterator[Access]:
    """Asks the API server."""
    with config.new_client_from_config(str(cluster.kubeconfig)) as api:  # type: ignore[no-untyped-call]
        yield Access(api)


def _groups(account: str) -> list[str]:
    return ["system:serviceaccounts", f"system:serviceaccounts:{account.split(':')[2]}", "system:authenticated"]


def _everything(cluster: Cluster) -> list[Verb]:
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


def test_the_operator_may_do_what_it_needs_and_nothing_else(release: Release, cluster: Cluster, access: Access) -> None:
    asked = _everything(cluster)
    assert set(asked) >= EVERYWHERE | AT_HOME
    operator = f"system:serviceaccount:{release.namespace}:{release.fullname}-operator"
    nobody = f"system:serviceaccount:{release.namespace}:nobody"
    for namespace, wanted in ((release.namespace, EVERYWHERE | AT_HOME), ("kube-public", EVERYWHERE)):
        given_to_all = access.allowed(nobody, namespace, asked)
        assert access.allowed(operator, namespace, asked) - given_to_all == wanted


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
    release: Release, access: Access, verb: str, resource: str, name: str, allowed: bool
) -> None:
    operator = f"system:serviceaccount:{release.namespace}:{release.fullname}-operator"
    asked = {
        "group": "coordination.k8s.io",
        "resource": resource,
        "verb": verb,
        "name": name.replace("OWN", f"{release.fullname}-operator"),
        "namespace": release.namespace,
    }
    assert access.may(operator, **asked) is allowed


@pytest.mark.parametrize(("name", "allowed"), [("kube-system", True), ("default", False)])
def test_the_operator_may_ask_for_the_clusters_identity(
    release: Release, access: Access, name: str, allowed: bool
) -> None:
    operator = f"system:serviceaccount:{release.namespace}:{release.fullname}-operator"
    assert access.may(operator, group="", resource="namespaces", verb="get", name=name, namespace=name) is allowed
