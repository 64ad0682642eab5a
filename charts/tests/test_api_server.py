"""What a real API server says of the objects."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tests import helm
from embedded.kubernetes import KubeApi
from embedded.process import wait_for

MONITORING = Path(__file__).parent / "monitoring-crds.yaml"


@pytest.fixture(scope="module")
def api(kube_api: KubeApi) -> KubeApi:
    """The API server, which knows the kinds of the Prometheus Operator as far as the chart uses them."""
    kube_api.kubectl("apply", "-f", str(MONITORING))
    kube_api.kubectl("wait", "--for=condition=Established", "-f", str(MONITORING), "--timeout=60s")
    return kube_api


@pytest.mark.parametrize("name", helm.CASES)
def test_every_object_is_accepted(api: KubeApi, name: str) -> None:
    text = yaml.safe_dump_all(helm.render(helm.case(name)))
    said = api.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert "Warning" not in said


def test_the_tenant_policy_binds_tenants_and_queues_to_namespaces(kube_api: KubeApi) -> None:
    objects = helm.render(helm.case("trial") | {"tenantPolicy": {"enabled": True}})
    wanted = ("CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    kube_api.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(each for each in objects if each["kind"] in wanted))
    kube_api.kubectl("wait", "--for=condition=Established", "crd/tickschedules.tickkeeper.dev", "--timeout=60s")
    kube_api.kubectl("label", "namespace", "team-a", "tenant.tickkeeper.dev/acme=", "queue.tickkeeper.dev/ticks=")

    def offer(namespace: str, **spec: Any) -> str:
        body = {"apiVersion": "tickkeeper.dev/v1alpha1", "kind": "TickSchedule", "metadata": {"name": "a"}}
        text = yaml.safe_dump(body | {"spec": {"tenant": "acme", "jobName": "j", "everyMs": 1000} | spec})
        return kube_api.try_kubectl("apply", "--dry-run=server", "-n", namespace, "-f", "-", stdin=text).stderr

    # Policies take effect a moment after they are written.
    wait_for(
        lambda: "no label tenant.tickkeeper.dev/acme" in offer("team-b"), seconds=60, what="the policy is in force"
    )
    wait_for(lambda: offer("team-a") == "", seconds=60, what="the namespace's labels are known")
    assert "no label tenant.tickkeeper.dev/globex" in offer("team-a", tenant="globex")
    assert "no label queue.tickkeeper.dev/mail" in offer("team-a", queueName="mail")

    kube_api.kubectl(
        *("apply", "-n", "team-a", "-f", "-"),
        stdin="{apiVersion: tickkeeper.dev/v1alpha1, kind: TickSchedule, metadata: {name: kept},"
        " spec: {tenant: acme, jobName: j, everyMs: 1000}}",
    )
    kube_api.kubectl("label", "namespace", "team-a", "tenant.tickkeeper.dev/acme-")
    wait_for(lambda: "no label" in offer("team-a"), seconds=60, what="the namespace's labels are known")
    # What is there already can still be finalized, annotated and deleted.
    kube_api.kubectl("annotate", "-n", "team-a", "tickschedule/kept", "example.org/a=b")
    kube_api.kubectl("delete", "-n", "team-a", "tickschedule/kept")
