"""The operator as a process: its settings, its probes, its end."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from embedded.kubernetes import KubeApi
from embedded.redis import Redis as RedisServer
from tests.integration.controller.conftest import Alone
from tests.integration.controller.operator_process import COMMAND


def test_retention_and_cap_are_the_operators_settings(alone: Alone) -> None:
    scene = alone(
        RETENTION_COMPLETED_COUNT="7", RETENTION_FAILED_AGE_SECONDS="60", MAX_LEN_EVENTS="77", CLUSTER_ID="mine"
    )
    scene.create_ready()
    with scene.server.client() as raw:
        opts = json.loads(scene.record(raw)["opts"])
        assert opts["removeOnComplete"] == {"count": 7, "age": 86_400}
        assert opts["removeOnFail"] == {"count": 1000, "age": 60}
        assert raw.hget(scene.key("meta"), "opts.maxLenEvents") == "77"
        assert scene.stamp(raw)["cluster"] == "mine"


def test_sigterm_ends_it_with_zero_and_leaves_the_schedules(alone: Alone) -> None:
    scene = alone()
    scene.create_ready()
    began = time.monotonic()
    assert scene.operator.terminate() == 0
    assert time.monotonic() - began < 5
    with scene.server.client() as raw:
        assert scene.score(raw) is not None
    assert scene.finalized()
    assert "Traceback" not in scene.operator.text
    assert "was never retrieved" not in scene.operator.text


def test_sigint_ends_it_too(alone: Alone) -> None:
    scene = alone()
    scene.operator.popen.send_signal(signal.SIGINT)
    assert scene.operator.popen.wait(15) == 0


@pytest.mark.parametrize("fault", ["down", "frozen"])
def test_b13_sigterm_ends_it_while_redis_is(alone: Alone, own_redis: RedisServer, fault: str) -> None:
    scene = alone(GRACE_SECONDS="3")
    scene.create_ready()
    own_redis.kill() if fault == "down" else own_redis.freeze()
    try:
        scene.operator.wait_for(lambda: scene.operator.events("redis_away"))
        began = time.monotonic()
        assert scene.operator.terminate() == 0
        assert time.monotonic() - began < 6, "its grace period, and the time to end"
    finally:
        if fault == "frozen":
            own_redis.thaw()


def test_d9_sigterm_in_the_middle_of_a_sweep_leaves_no_task(alone: Alone) -> None:
    scene = alone()
    names = [f"s{number}" for number in range(20)]
    for name in names:
        scene.create(name, tenant=name)
    with scene.server.client() as raw:
        scene.until(lambda: raw.zcard(scene.key("repeat")) > 3)
    assert scene.operator.terminate() == 0
    assert "Traceback" not in scene.operator.text
    assert "was destroyed but it is pending" not in scene.operator.text


def test_probes_and_metrics_tell_of_themselves(alone: Alone) -> None:
    scene = alone()
    scene.create_ready()
    status, body = scene.operator.get("/livez")
    assert (status, json.loads(body)["ok"]) == (200, True)
    assert scene.operator.get("/readyz")[0] == 200
    assert scene.operator.get("/nothing")[0] == 404
    address = f"redis://127.0.0.1:{scene.server.port}/0"
    assert scene.operator.metric("tickkeeper_redis_up", f'{{redis="{address}"}}') == 1
    assert scene.operator.metric("tickkeeper_redis_schedules", f'{{redis="{address}"}}') == 1
    assert scene.operator.metric("tickkeeper_schedules", '{reason="Ready"}') == 1
    assert scene.operator.metric("tickkeeper_api_writes_total") >= 1
    metrics = scene.operator.get("/metrics")[1]
    assert "process_resident_memory_bytes" in metrics
    assert "acme" not in metrics, "labels are bounded: no tenant, no name"


def test_only_the_named_namespaces_are_watched(alone: Alone) -> None:
    scene = alone()
    other = scene.cluster.new_namespace()
    body = {
        "apiVersion": "tickkeeper.dev/v1alpha1",
        "kind": "TickSchedule",
        "metadata": {"name": "elsewhere"},
        "spec": scene.spec(tenant="elsewhere"),
    }
    scene.cluster.schedules.create_namespaced_custom_object("tickkeeper.dev", "v1alpha1", other, "tickschedules", body)
    try:
        scene.create_ready()
        scene.operator.after_sweeps(2)
        with scene.server.client() as raw:
            assert raw.zrange(scene.key("repeat"), 0, -1) == ["drain.acme"]
    finally:
        scene.cluster.clear(other)


def test_without_a_redis_of_its_own_a_schedule_must_name_one(alone: Alone, own_redis: RedisServer) -> None:
    scene = alone(REDIS_URL="")
    scene.create()
    scene.until_condition("Ready", "False", "ReferenceNotFound", says="TICKKEEPER_REDIS_URL")
    scene.secret(url=own_redis.url)
    scene.patch(redis={"secretRef": {"name": "redis"}})
    scene.until_condition("Ready", "True")


def test_a_schedule_that_moved_away_from_the_operators_own_redis_while_it_was_down_is_cleared_there(
    alone: Alone, own_redis: RedisServer
) -> None:
    scene = alone()
    scene.create_ready()
    scene.operator.kill()
    with RedisServer() as new, own_redis.client() as old_raw, new.client() as new_raw:
        scene.secret(url=new.url)
        scene.patch(redis={"secretRef": {"name": "redis"}})
        scene.operator.start()
        scene.until_condition("Ready", "True")
        assert scene.score(new_raw) is not None
        scene.until(lambda: scene.left(old_raw) == set(), what="nothing is left in the operator's own Redis")


def start(kube_api: KubeApi, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start it, for it to end at once."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TICKKEEPER_")}
    return subprocess.run(
        COMMAND,
        env={**inherited, "TICKKEEPER_KUBECONFIG": str(kube_api.kubeconfig), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(kube_api: KubeApi, **environment: str) -> list[str]:
    """Start it with a bad environment; the lines that it prints."""
    done = start(kube_api, **environment)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_bad_environment_is_one_line_a_fault_and_exit_2(kube_api: KubeApi) -> None:
    lines = refused(
        kube_api,
        TICKKEEPER_REDIS_URL="http://:hunter2@example.com",
        TICKKEEPER_SWEEP_SECONDS="soon",
        TICKKEEPER_HTTP_PORT="70000",
    )
    assert all(line.startswith("tickkeeper: TICKKEEPER_") for line in lines)
    told = {line.split("=")[0].split(":")[1].strip() for line in lines}
    assert {"TICKKEEPER_SWEEP_SECONDS", "TICKKEEPER_HTTP_PORT"} <= told
    assert len(lines) == len(told)
    assert "hunter2" not in "".join(lines)


def test_a_kubeconfig_that_is_not_there_is_told(kube_api: KubeApi) -> None:
    lines = refused(kube_api, TICKKEEPER_KUBECONFIG="/nowhere/kubeconfig")
    assert len(lines) == 1
    assert "/nowhere/kubeconfig" in lines[0]
    assert "TICKKEEPER_KUBECONFIG" in lines[0]


def test_no_cluster_at_all_is_told_with_the_remedies(kube_api: KubeApi, tmp_path: Path) -> None:
    lines = refused(kube_api, TICKKEEPER_KUBECONFIG="", KUBECONFIG="", HOME=str(tmp_path))
    told = [line for line in lines if line.startswith("tickkeeper: no Kubernetes cluster is configured")]
    assert len(told) == 1
    for remedy in ("service account", "TICKKEEPER_KUBECONFIG", "KUBECONFIG", "--kubeconfig"):
        assert remedy in told[0]


def test_a_port_that_is_taken_is_told(kube_api: KubeApi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = start(kube_api, TICKKEEPER_HTTP_PORT=port, TICKKEEPER_CLUSTER_ID="mine")
    assert done.returncode == 1
    assert port in done.stderr
