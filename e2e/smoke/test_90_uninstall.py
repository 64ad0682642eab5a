"""The end: nothing hangs, whatever is gone already."""

import time

from e2e import own_redis
from e2e.cluster import Cluster
from e2e.measure import Measurements
from e2e.release import Release
from e2e.schedules import Schedules
from e2e.settings import Settings
from embedded.process import wait_for


def test_e2_a_namespace_goes_although_its_redis_and_secret_are_gone(
    release: Release, cluster: Cluster, settings: Settings, schedules: Schedules, namespace: str, measured: Measurements
) -> None:
    redis = own_redis.OwnRedis(cluster, namespace, settings)
    redis.create(password="before")
    schedules.apply("acme", redis={"secretRef": {"name": redis.secret}})
    schedules.wait_until("acme", "Registered", "True")
    redis.delete()
    started = time.monotonic()
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    wait_for(
        lambda: cluster.get("namespace", namespace) is None, seconds=120, what="the namespace is gone", interval=0.5
    )
    measured.add("namespace deleted without its Redis", time.monotonic() - started)


def test_e9_uninstall_keeps_resources_and_their_namespace_can_go(release: Release, cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "left-behind")
    schedules = Schedules(cluster, "left-behind")
    schedules.apply_all({f"kept-{number}": {} for number in range(20)})
    schedules.wait_until("kept-19", "Ready", "True")
    release.uninstall()
    assert cluster.get("crd", "tickschedules.tickkeeper.dev") is not None
    assert len(schedules.all()) == 20
    assert not any(each["metadata"].get("finalizers") for each in schedules.all())
    for namespace in ("left-behind", release.namespace):
        cluster.kubectl("delete", "namespace", namespace, "--timeout=120s", seconds=150)
    left = cluster.kubectl(
        "get", "clusterroles,clusterrolebindings", "-l", f"app.kubernetes.io/instance={release.name}", "-o", "name"
    )
    assert left == ""
