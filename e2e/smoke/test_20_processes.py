"""The pods themselves: what they may do, what they show, and the end of one."""

import json
import time

from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster import Cluster
from e2e.measure import Measurements
from e2e.release import Release
from e2e.schedules import Schedules
from embedded.process import wait_for


def test_d7_the_other_replica_heals_after_the_leader_was_killed(
    release: Release, cluster: Cluster, schedules: Schedules, measured: Measurements
) -> None:
    schedules.apply("orphan")
    schedules.wait_until("orphan", "Ready", "True")
    key = schedules.scheduler("orphan")
    leader = release.leader()
    assert leader is not None
    cluster.kill_container(leader, release.namespace)
    killed = time.monotonic()
    release.redis("ZREM", "bull:ticks:repeat", key)
    wait_for(lambda: release.redis("ZSCORE", "bull:ticks:repeat", key), seconds=60, what="healed", interval=0.1)
    measured.add("leader killed to healed", time.monotonic() - killed, bar=15)
    wait_for(lambda: release.leader() is not None, seconds=60, what="somebody leads", interval=0.3)
    release.rolled_out(f"deploy/{release.fullname}-operator")


def test_metrics_are_what_prometheus_can_read(release: Release, schedules: Schedules) -> None:
    schedules.apply("counted")
    schedules.wait_until("counted", "Ticking", "True")
    told: dict[str, set[str]] = {}
    for component, wanted in (
        ("operator", {"tickkeeper_schedules", "tickkeeper_heals", "tickkeeper_redis_up", "tickkeeper_leader"}),
        ("worker-default", {"tickkeeper_ticks", "tickkeeper_rows", "tickkeeper_tick_lag_seconds"}),
    ):
        for pod in release.pods(component):
            families = text_string_to_metric_families(release.metrics(pod["metadata"]["name"]))
            told.setdefault(component, set()).update(family.name for family in families if family.samples)
        assert told[component] >= wanted


def test_pods_have_no_privileges(release: Release) -> None:
    for component in ("operator", "worker-default", "trial-redis", "trial-postgres"):
        for pod in release.pods(component):
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
            for container in pod["spec"]["containers"]:
                context = container["securityContext"]
                assert context["readOnlyRootFilesystem"] is True
                assert context["allowPrivilegeEscalation"] is False
                assert context["capabilities"] == {"drop": ["ALL"]}


def test_no_credential_is_shown_anywhere(release: Release, cluster: Cluster) -> None:
    secrets = cluster.list("secrets", release.namespace, f"app.kubernetes.io/instance={release.name}")
    import base64

    passwords = {
        base64.b64decode(secret["data"]["password"]).decode() for secret in secrets if "password" in secret["data"]
    }
    assert len(passwords) == 2
    shown = json.dumps(
        [cluster.list(kind, release.namespace) for kind in ("deployments", "pods", "configmaps", "events", "jobs")]
        + [cluster.list("tickschedules")]
    )
    for component in ("operator", "worker-default", "migrate"):
        for pod in release.pods(component):
            shown += cluster.kubectl("logs", "-n", release.namespace, pod["metadata"]["name"], "--all-containers")
    shown += cluster.on_node("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    for password in passwords:
        assert password not in shown
