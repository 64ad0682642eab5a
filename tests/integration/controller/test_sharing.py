"""Sharing a Redis: allow-lists, orphans of deletions that could not wait, two replicas of the operator."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedded.redis import Redis as RedisServer
from tests.integration.controller.conftest import Alone
from tests.integration.controller.operator_process import Operator, operator_process
from tests.integration.controller.scene import Scene


def test_what_is_not_allowed_is_refused_and_not_written(alone: Alone, own_redis: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "allow.yaml"
    rule = {"namespaces": ["tick-*"], "prefixes": ["tick-*"], "queueNames": ["ticks"], "schedulerIds": ["mine:*"]}
    file.write_text(json.dumps({"redisHosts": ["127.0.0.1"], "rules": [rule]}))
    scene = alone(ALLOW_FILE=str(file))
    scene.secret("elsewhere", url="redis://elsewhere.example:6379/0")
    scene.create("queue", tenant="queue", queueName="theirs")
    scene.create("prefix", tenant="prefix", prefix="theirs")
    scene.create("id", tenant="id", schedulerId="theirs")
    scene.create("host", tenant="host", redis={"secretRef": {"name": "elsewhere"}})
    for name, field in (
        ("queue", r"spec\.queueName: theirs"),
        ("prefix", r"spec\.prefix: theirs"),
        ("id", r"spec\.schedulerId: theirs"),
        ("host", r"elsewhere\.example"),
    ):
        scene.until_condition("Registered", "False", "NotAllowed", says=field, name=name)
        assert scene.until_event("NotAllowed", name=name).type == "Warning"
    with own_redis.client() as raw:
        assert raw.dbsize() == 0
        scene.create_ready("mine", schedulerId="mine:1:a")
        assert scene.score(raw, "mine:1:a") is not None


def test_with_a_list_naming_an_applications_scheduler_does_not_adopt_it(alone: Alone, tmp_path: Path) -> None:
    file = tmp_path / "allow.yaml"
    file.write_text(json.dumps({"rules": [{"namespaces": ["*"]}]}))
    scene = alone(ALLOW_FILE=str(file))
    scene.driver_starts("theirs")
    scene.create(schedulerId="theirs")
    scene.until_condition("Registered", "False", "ForeignOwner")
    scene.annotate(adopt="true")
    scene.until_condition("Ready", "True")
    with scene.server.client() as raw:
        assert scene.stamp(raw, "theirs")["name"] == "acme"


REPLICA = {"LEADER_ELECTION": "true", "LEASE_NAMESPACE": "default"}


@contextmanager
def standby(scene: Scene, tmp_path: Path, lease: str) -> Iterator[Operator]:
    """A second operator, that knows all and waits for its turn."""
    settings = {
        "REDIS_URL": scene.server.url,
        "NAMESPACES": scene.namespace,
        "POD_NAME": "two",
        "LEASE_NAME": lease,
        **REPLICA,
    }
    kubeconfig = scene.cluster.server.kubeconfig
    with operator_process(tmp_path / "second", kubeconfig=kubeconfig, **settings) as second:
        second.start()
        yield second


def test_d7_of_two_replicas_one_acts_and_the_other_takes_over(alone: Alone, tmp_path: Path) -> None:
    scene = alone(POD_NAME="one", LEASE_NAME="d7", **REPLICA)
    first = scene.operator
    first.wait_for(lambda: first.events("leading"))
    with standby(scene, tmp_path, "d7") as second:
        scene.create_ready()
        assert not second.events("leading")
        assert second.metric("tickkeeper_leader") == 0
        assert second.sweeps() == 0, "the standby does not even look"
        assert second.get("/readyz")[0] == 200
        first.kill()
        began = time.monotonic()
        scene.operator = second
        with scene.server.client() as raw:
            slot = scene.score(raw)
            raw.flushall()
            scene.until(lambda: scene.score(raw) == slot, 30, "the other one heals")
        assert time.monotonic() - began < 15, "10 s for the Lease to run out, and its turns"
        scene.until(lambda: scene.heals() == 1)
        # Given back in order, the Lease is another's at once.
        first.start()
        assert second.terminate() == 0
        scene.operator = first
        first.wait_for(lambda: len(first.events("leading")) == 2, 8)


def test_d7_a_leader_that_stood_still_writes_no_more_and_ends(alone: Alone, tmp_path: Path) -> None:
    scene = alone(POD_NAME="one", LEASE_NAME="d7-frozen", **REPLICA)
    first = scene.operator
    scene.create_ready()
    with standby(scene, tmp_path, "d7-frozen") as second, scene.server.client() as raw:
        first.popen.send_signal(signal.SIGSTOP)
        second.wait_for(lambda: second.events("leading"), 15)
        scene.operator = second
        second.after_sweeps(1)
        raw.zrem(scene.key("repeat"), "drain.acme")
        scene.until(lambda: scene.score(raw) is not None, 10, "the second heals")
        scene.until(lambda: scene.heals() == 1, 10, "the second tells")
        version = scene.get()["metadata"]["resourceVersion"]
        written = len(first.events("healed"))
        first.popen.send_signal(signal.SIGCONT)
        assert first.popen.wait(15) == 1, "the kubelet starts it again"
        assert "was not renewed" in first.text
        assert len(first.events("healed")) == written
        # It has slept through the second's statuses, and takes them for forgeries of its own.
        assert scene.get()["metadata"]["resourceVersion"] == version
