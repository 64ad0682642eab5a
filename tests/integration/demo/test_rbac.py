"""deploy/rbac.yaml: enough for the operator, and nothing beyond."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.cluster import CRD, RBAC
from demo.parts import Program
from embedded.kubernetes import KubeApi
from embedded.process import wait_for
from embedded.redis import Redis

ACCOUNT = ("tickkeeper-system", "tickkeeper-operator")
NAMESPACE = "rbac-test"


def forget_other_tests(kube_api: KubeApi) -> None:
    """Remove what other tests left on the session's API server: this operator watches all of it."""
    listing = (
        "get",
        "tickschedules",
        "-A",
        "-o",
        "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}",
    )
    for each in kube_api.kubectl(*listing).split():
        namespace, _, name = each.partition("/")
        where = (f"tickschedule/{name}", "--namespace", namespace)
        kube_api.try_kubectl("patch", *where, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        kube_api.try_kubectl("delete", *where, "--ignore-not-found")


@pytest.fixture(scope="module")
def account(kube_api: KubeApi) -> Path:
    """The kubeconfig of the operator's service account."""
    kube_api.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD), "-f", str(RBAC))
    kube_api.kubectl("wait", "--for=condition=Established", "crd/tickschedules.tickkeeper.dev", "--timeout=30s")
    forget_other_tests(kube_api)
    kube_api.kubectl("create", "namespace", NAMESPACE)
    return kube_api.service_account_kubeconfig(*ACCOUNT)


@pytest.fixture
def operator(account: Path, redis_url: str, tmp_path: Path) -> Iterator[Program]:
    """An operator as that account, ready."""
    settings = {
        "TICKKEEPER_REDIS_URL": redis_url,
        "TICKKEEPER_KUBECONFIG": str(account),
        "TICKKEEPER_LEADER_ELECTION": "true",
        "TICKKEEPER_LEASE_NAMESPACE": ACCOUNT[0],
    }
    program = Program("operator", tmp_path, settings)
    program.start()
    try:
        program.wait_ready()
        yield program
    finally:
        program.stop()


def test_the_operator_does_all_its_work_as_that_account(
    kube_api: KubeApi, operator: Program, redis_server: Redis
) -> None:
    resource = {
        "apiVersion": "tickkeeper.dev/v1alpha1",
        "kind": "TickSchedule",
        "metadata": {"name": "acme", "namespace": NAMESPACE},
        "spec": {"tenant": "acme", "jobName": "drain", "everyMs": 3_600_000},
    }
    kube_api.kubectl("apply", "-f", "-", stdin=json.dumps(resource))
    named = ("tickschedule/acme", "--namespace", NAMESPACE)
    kube_api.kubectl("wait", *named, "--for=condition=Ready", "--timeout=60s")
    events = ("get", "events", "--namespace", NAMESPACE, "-o", "jsonpath={.items[*].reason}")
    wait_for(lambda: "Registered" in kube_api.kubectl(*events), seconds=30, what="the event Registered", interval=0.2)
    kube_api.kubectl("delete", *named, "--timeout=60s")  # takes the finalizer off
    with redis_server.client() as client:
        assert client.zcard("bull:ticks:repeat") == 0
    held = ("get", "lease", ACCOUNT[1], "--namespace", ACCOUNT[0], "-o", "jsonpath={.spec.holderIdentity}")
    assert kube_api.kubectl(*held)
    operator.stop()
    wait_for(lambda: not kube_api.kubectl(*held), seconds=20, what="the lease released", interval=0.2)
    log = operator.log.read_text()
    assert "leading" in log
    assert not [line for line in log.splitlines() if "forbidden" in line.lower() or "permission" in line.lower()]


@pytest.mark.parametrize(
    "question",
    [
        "get secrets",
        "list secrets",
        "create tickschedules.tickkeeper.dev",
        "delete tickschedules.tickkeeper.dev",
        "update tickschedules.tickkeeper.dev",
        "patch events",
        "list events",
        "get namespaces",
        "list namespaces",
        "get pods",
        "list configmaps",
        "patch customresourcedefinitions.apiextensions.k8s.io",
        "create clusterrolebindings.rbac.authorization.k8s.io",
        "get leases.coordination.k8s.io",
        "create leases.coordination.k8s.io",
    ],
)
def test_the_operator_may_do_nothing_else(kube_api: KubeApi, account: Path, question: str) -> None:
    asked = kube_api.try_kubectl("auth", "can-i", *question.split(), "--namespace", NAMESPACE, kubeconfig=account)
    assert (asked.stdout.strip(), asked.returncode) == ("no", 1)


def test_secrets_are_granted_namespace_by_namespace(kube_api: KubeApi, account: Path) -> None:
    kube_api.kubectl("create", "namespace", "with-secrets")
    binding = ("tickkeeper-redis-secrets", "--clusterrole", "tickkeeper-redis-secrets")
    subject = ("--serviceaccount", ":".join(ACCOUNT), "--namespace", "with-secrets")
    kube_api.kubectl("create", "rolebinding", *binding, *subject)
    question = ("auth", "can-i", "get", "secrets", "--namespace")
    assert kube_api.try_kubectl(*question, "with-secrets", kubeconfig=account).stdout.strip() == "yes"
    assert kube_api.try_kubectl(*question, NAMESPACE, kubeconfig=account).stdout.strip() == "no"
