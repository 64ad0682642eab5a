"""The API server is down, frozen, slow to grant, or forgets a watch: schedules go on, the operator recovers.

An API server of this module alone, since it is killed and frozen.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from kubernetes import config

from embedded.kubernetes import KubeApi
from embedded.redis import Redis as RedisServer
from tests.integration.controller.conftest import Alone, serve
from tests.integration.controller.scene import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with KubeApi() as server, config.new_client_from_config(str(server.kubeconfig)) as api:
        yield serve(server, api)


def test_an_api_server_that_is_away_for_ten_seconds_costs_no_tick(alone: Alone, cluster: Cluster) -> None:
    scene = alone()
    scene.create_ready()
    with scene.server.client() as raw:
        slot = scene.score(raw)
        cluster.server.kill()
        raw.flushall()
        scene.operator.wait_for(lambda: scene.score(raw) == slot, 10)
        assert scene.operator.get("/livez")[0] == 200
        scene.operator.after_sweeps(15)  # about ten seconds
        cluster.server.start()
        scene.until(lambda: scene.heals() == 1, 40, "the heal is in the status once it can be written")
        scene.until_event("Healed", seconds=40)
        # And it watches again.
        scene.patch(everyMs=60_000, offsetMs=5)
        scene.until_condition("Ready", "True", seconds=60)
        assert scene.record(raw)["every"] == "60000"
        scene.create_ready("new", tenant="new")
        scene.delete()
        scene.until_gone()
    assert scene.operator.running


def test_what_changed_while_the_api_server_restarted_is_seen(alone: Alone, cluster: Cluster) -> None:
    scene = alone()
    scene.create_ready()
    scene.operator.popen.send_signal(signal.SIGSTOP)  # so that it cannot have seen the change before
    scene.patch(everyMs=60_000, offsetMs=5)
    cluster.server.restart(kill=True)
    scene.operator.popen.send_signal(signal.SIGCONT)
    with scene.server.client() as raw:
        scene.until(lambda: scene.record(raw)["every"] == "60000", 60)
    scene.until_condition("Ready", "True", seconds=60)


def test_a_frozen_api_server_does_not_stop_healing_nor_the_end(alone: Alone, cluster: Cluster) -> None:
    scene = alone(GRACE_SECONDS="3")
    scene.create_ready()
    with scene.server.client() as raw:
        slot = scene.score(raw)
        cluster.server.freeze()
        try:
            for _ in range(3):
                raw.flushall()
                scene.operator.wait_for(lambda: scene.score(raw) == slot, 10)
            assert scene.operator.get("/livez")[0] == 200
            began = time.monotonic()
            assert scene.operator.terminate(15) == 0
            assert time.monotonic() - began < 6, "its grace period, and the time to end"
        finally:
            cluster.server.thaw()


def test_an_operator_that_starts_before_the_api_server_waits_for_it(alone: Alone, cluster: Cluster) -> None:
    scene = alone(start=False)
    scene.create()
    cluster.server.kill()
    try:
        scene.operator.start(synced=False)
        scene.operator.wait_for(lambda: "no answer from the API server" in scene.operator.text)
        assert scene.operator.running
    finally:
        cluster.server.start()
    scene.operator.wait_for(lambda: scene.operator.events("synced"), 60)
    scene.until_condition("Ready", "True", seconds=60)
    assert scene.operator.get("/readyz")[0] == 200


#: What it reads and writes, but for the status, which is a right of its own.
RIGHTS = "tickschedules.tickkeeper.dev,secrets,events,namespaces,customresourcedefinitions"


def test_an_operator_that_is_granted_its_rights_one_by_one_catches_up(alone: Alone, cluster: Cluster) -> None:
    kubectl = cluster.server.kubectl
    account = cluster.server.service_account_kubeconfig("operator-home", "operator")
    scene = alone(start=False, KUBECONFIG=str(account), CLUSTER_ID="mine")
    scene.create()
    scene.operator.start(synced=False)
    scene.operator.wait_for(lambda: "answered 403" in scene.operator.text)
    grant(kubectl, "all-but-status", RIGHTS)
    with scene.server.client() as raw:
        scene.until(lambda: scene.score(raw) is not None, 60, "it is registered though that cannot be told")
    scene.operator.wait_for(lambda: '"write_status"' in scene.operator.text)
    grant(kubectl, "status", "tickschedules.tickkeeper.dev/status")
    scene.until_condition("Ready", "True", seconds=90)


def grant(kubectl: Callable[..., str], name: str, resources: str) -> None:
    kubectl("create", "clusterrole", name, "--verb=*", f"--resource={resources}")
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--serviceaccount=operator-home:operator")


def test_b13_sigterm_ends_it_while_redis_is_frozen_and_the_api_server_too(
    alone: Alone, cluster: Cluster, own_redis: RedisServer
) -> None:
    scene = alone(GRACE_SECONDS="3")
    scene.create_ready()
    own_redis.freeze()
    cluster.server.freeze()
    try:
        scene.operator.wait_for(lambda: scene.operator.events("redis_away"))
        began = time.monotonic()
        assert scene.operator.terminate(15) == 0
        assert time.monotonic() - began < 6
    except subprocess.TimeoutExpired:
        pytest.fail(f"still there after 15 s\n{scene.operator.tail}")
    finally:
        cluster.server.thaw()
        own_redis.thaw()


@pytest.mark.parametrize("namespaces", ["named", "all"])
def test_a_crd_that_is_installed_after_the_operator_is_watched(alone: Alone, cluster: Cluster, namespaces: str) -> None:
    cluster.server.kubectl("delete", "crd", "tickschedules.tickkeeper.dev")
    scene = alone(start=False) if namespaces == "named" else alone(start=False, NAMESPACES="")
    try:
        scene.operator.start(synced=False)
        scene.operator.wait_for(lambda: "answered 404" in scene.operator.text)
    finally:
        serve(cluster.server, cluster.core.api_client)
    with scene.server.client() as raw:
        scene.create()
        scene.until(lambda: scene.score(raw) is not None, 30)
        scene.until_condition("Ready", "True")
        # It was not the list alone that showed it: what changes now is seen as well.
        scene.patch(everyMs=60_000, offsetMs=5)
        scene.until_condition("Ready", "True", seconds=15)
        assert scene.record(raw)["every"] == "60000"
