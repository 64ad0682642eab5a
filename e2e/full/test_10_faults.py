"""What others do to a schedule, and what becomes of it."""

import json
import time

import pytest

from e2e import own_redis
from e2e.cluster import Cluster
from e2e.full.conftest import Driver
from e2e.measure import Measurements
from e2e.release import Release
from e2e.schedules import Schedules
from e2e.settings import Settings
from e2e.tools import Failed
from embedded.process import wait_for


def test_a_redis_that_comes_back_empty_is_filled_again(
    release: Release, cluster: Cluster, schedules: Schedules, measured: Measurements
) -> None:
    schedules.apply_all({f"many-{number}": {} for number in range(20)})
    schedules.wait_until("many-19", "Ready", "True")
    (pod,) = release.pods("trial-redis")
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", release.namespace, "--grace-period=0", "--force")
    release.rolled_out(f"deploy/{release.fullname}-trial-redis")
    back = time.monotonic()
    wait_for(
        lambda: int(release.redis("ZCARD", "bull:ticks:repeat")) >= 20,
        seconds=60,
        what="all are registered again",
        interval=0.1,
    )
    measured.add("Redis pod back, empty, to 20 schedules registered again", time.monotonic() - back)
    wait_for(lambda: len(release.ticks("ticks")) >= 20, seconds=60, what="all tick again", interval=0.5)


def test_a_node_drivers_stop_takes_nothing_away(release: Release, schedules: Schedules, driver: Driver) -> None:
    schedules.apply("adopted", schedulerId="shop-clock", queueName="shop")
    schedules.wait_until("adopted", "Registered", "True")
    said = json.loads(driver("stop", "shop-clock", QUEUE="shop"))
    assert said["removed"] is True
    wait_for(lambda: release.redis("ZSCORE", "bull:shop:repeat", "shop-clock"), seconds=30, what="back", interval=0.1)
    wait_for(lambda: schedules.status("adopted").get("heals", 0) >= 1, seconds=30, what="counted", interval=0.2)


def test_a_node_drivers_start_with_another_interval_is_corrected(
    release: Release, schedules: Schedules, driver: Driver
) -> None:
    schedules.apply("mine", schedulerId="drift", queueName="shop", everyMs=60_000)
    schedules.wait_until("mine", "Registered", "True")
    driver("start", "drift", "7000", QUEUE="shop")
    wait_for(
        lambda: release.redis("HGET", "bull:shop:repeat:drift", "every") == "60000",
        seconds=30,
        what="the interval is the resource's",
        interval=0.2,
    )
    assert schedules.condition("mine", "Registered")[0] == "True"


def test_suspend_removes_and_resume_brings_back(release: Release, schedules: Schedules) -> None:
    schedules.apply("resting")
    schedules.wait_until("resting", "Ready", "True")
    key = schedules.scheduler("resting")
    schedules.apply("resting", suspend=True)
    schedules.wait_until("resting", "Ready", "True", "Suspended")
    assert release.redis("ZSCORE", "bull:ticks:repeat", key) == ""
    schedules.apply("resting", suspend=False)
    schedules.wait_until("resting", "Ready", "True", "Ready")
    assert release.redis("ZSCORE", "bull:ticks:repeat", key) != ""


def test_paused_keeps_its_hands_off(release: Release, schedules: Schedules) -> None:
    schedules.apply("handmade")
    schedules.wait_until("handmade", "Ready", "True")
    key = schedules.scheduler("handmade")
    schedules.apply("handmade", annotations={"tickkeeper.dev/paused": "true"})
    schedules.wait_until("handmade", "Registered", "False", "OperatorPaused")
    release.redis("ZREM", "bull:ticks:repeat", key)
    # Another one is healed meanwhile: so the operator has looked.
    schedules.apply("witness")
    schedules.wait_until("witness", "Ready", "True")
    release.redis("ZREM", "bull:ticks:repeat", schedules.scheduler("witness"))
    wait_for(lambda: schedules.status("witness").get("heals", 0) >= 1, seconds=30, what="witness healed", interval=0.2)
    assert release.redis("ZSCORE", "bull:ticks:repeat", key) == ""
    schedules.apply("handmade", annotations={"tickkeeper.dev/paused": "false"})
    wait_for(lambda: release.redis("ZSCORE", "bull:ticks:repeat", key), seconds=30, what="healed", interval=0.2)


def test_e3_a_rotated_secret_is_picked_up(
    cluster: Cluster, settings: Settings, schedules: Schedules, namespace: str, measured: Measurements, release: Release
) -> None:
    redis = own_redis.OwnRedis(cluster, namespace, settings)
    redis.create(password="before")
    schedules.apply("acme", redis={"secretRef": {"name": redis.secret}})
    schedules.wait_until("acme", "Registered", "True")
    redis.run("before", "CONFIG", "SET", "requirepass", "after")
    redis.run("after", "CLIENT", "KILL", "TYPE", "normal")
    schedules.wait_until("acme", "Registered", "False", "RedisUnreachable")
    rotated = time.monotonic()
    redis.write_secret("after")
    schedules.wait_until("acme", "Registered", "True", seconds=90)
    measured.add("Secret rotated to registered", time.monotonic() - rotated)
    told = cluster.kubectl("get", "events,tickschedules", "-n", namespace, "-o", "json")
    assert "before" not in told
    schedules.delete("acme")


def test_changes_made_while_no_operator_runs_are_caught_up(
    release: Release, cluster: Cluster, schedules: Schedules, namespace: str
) -> None:
    operator = f"deploy/{release.fullname}-operator"
    schedules.apply_all({name: {} for name in ("changed", "deleted", "untouched")})
    for name in ("changed", "deleted", "untouched"):
        schedules.wait_until(name, "Ready", "True")
    gone = schedules.scheduler("deleted")
    cluster.kubectl("scale", operator, "-n", release.namespace, "--replicas=0")
    wait_for(lambda: not release.pods("operator"), seconds=60, what="no operator runs", interval=0.3)
    schedules.apply("changed", everyMs=2000)
    schedules.apply("new")
    schedules.delete("deleted", wait=False)
    cluster.kubectl("scale", operator, "-n", release.namespace, "--replicas=2")
    schedules.wait_until("new", "Ready", "True", seconds=90)
    wait_for(
        lambda: cluster.get("tickschedule", "deleted", namespace) is None, seconds=60, what="deleted", interval=0.3
    )
    assert release.redis("ZSCORE", "bull:ticks:repeat", gone) == ""
    wait_for(
        lambda: release.redis("HGET", f"bull:ticks:repeat:{schedules.scheduler('changed')}", "every") == "2000",
        seconds=60,
        what="the new interval is registered",
        interval=0.3,
    )
    assert schedules.status("untouched").get("heals", 0) == 0
    release.rolled_out(operator)


def test_tenants_are_bound_to_namespaces(
    release: Release, cluster: Cluster, schedules: Schedules, namespace: str
) -> None:
    release.upgrade({"tenantPolicy": {"enabled": True}})

    def refused() -> bool:
        try:
            schedules.apply("acme")
        except Failed as failed:
            return "no label tenant.tickkeeper.dev/acme" in str(failed)
        schedules.delete("acme")
        return False

    wait_for(refused, seconds=60, what="the policy is in force", interval=0.5)
    cluster.kubectl("label", "namespace", namespace, "tenant.tickkeeper.dev/acme=", "queue.tickkeeper.dev/ticks=")
    wait_for(lambda: not refused(), seconds=60, what="the labels are known", interval=0.5)
    with pytest.raises(Failed, match=r"no label queue\.tickkeeper\.dev/mail"):
        schedules.apply("acme", queueName="mail")
    release.upgrade()


def test_autoscaler_and_network_policies_are_accepted(release: Release, cluster: Cluster) -> None:
    pool = release.values["workers"][0] | {"autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 3}}
    release.upgrade({"workers": [pool], "networkPolicy": {"enabled": True}})
    scaler = cluster.get("hpa", f"{release.fullname}-worker-default", release.namespace)
    assert scaler is not None
    assert scaler["spec"]["maxReplicas"] == 3
    policies = {each["metadata"]["name"] for each in cluster.list("networkpolicies", release.namespace)}
    assert policies == {f"{release.fullname}-operator", f"{release.fullname}-workers"}
    assert "passed" in cluster.helm("test", release.name, "-n", release.namespace, "--logs", "--timeout", "150s")
    release.upgrade()
