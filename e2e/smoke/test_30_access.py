"""RBAC: what the operator may do, and that it is all that it may do."""

import pytest

from e2e.access import AT_HOME, CLUSTER_WIDE, IN_A_NAMESPACE, SECRETS, Access
from e2e.release import Release


@pytest.fixture
def operator(release: Release) -> str:
    """The operator's account."""
    return f"system:serviceaccount:{release.namespace}:{release.fullname}-operator"


def test_the_operator_may_do_what_it_needs_and_nothing_else(release: Release, access: Access, operator: str) -> None:
    everywhere = IN_A_NAMESPACE | SECRETS | CLUSTER_WIDE
    assert set(access.everything) >= everywhere | AT_HOME
    assert access.given(operator, release.namespace) == everywhere | AT_HOME
    assert access.given(operator, "kube-public") == everywhere


@pytest.mark.parametrize(
    ("verb", "name", "allowed"),
    [
        ("get", "OWN", True),
        ("update", "OWN", True),
        ("patch", "OWN", False),
        ("delete", "OWN", False),
        ("get", "another", False),
        ("update", "another", False),
    ],
)
def test_the_operator_has_its_own_lease_only(
    release: Release, access: Access, operator: str, verb: str, name: str, allowed: bool
) -> None:
    asked = {
        "group": "coordination.k8s.io",
        "resource": "leases",
        "verb": verb,
        "name": name.replace("OWN", f"{release.fullname}-operator"),
        "namespace": release.namespace,
    }
    assert access.may(operator, **asked) is allowed


@pytest.mark.parametrize(("name", "allowed"), [("kube-system", True), ("default", False)])
def test_the_operator_may_ask_for_the_clusters_identity(
    access: Access, operator: str, name: str, allowed: bool
) -> None:
    assert access.may(operator, group="", resource="namespaces", verb="get", name=name, namespace=name) is allowed


def test_workers_may_do_nothing_and_have_no_token(release: Release, access: Access) -> None:
    account = f"{release.fullname}-worker-default"
    assert access.given(f"system:serviceaccount:{release.namespace}:{account}", release.namespace) == set()
    for pod in release.pods("worker-default"):
        assert pod["spec"]["serviceAccountName"] == account
        assert not [volume for volume in pod["spec"]["volumes"] if "projected" in volume]
