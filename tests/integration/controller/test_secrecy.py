"""E8: no password in any log line, event, status, metric or process list, whatever goes wrong."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.redis import Redis as RedisServer
from tests.integration.controller.conftest import Alone
from tests.integration.controller.scene import Scene

OWN = "0wn/p@ss:w%rd"
SECRET = "s3cret/p@ss:w%rd"
WRONG = "wr0ng/p@ss:w%rd"


def forms(password: str) -> set[str]:
    """How it may be spelled: raw, and percent-encoded as in a URL."""
    encoded = password.replace("%", "%25").replace("/", "%2F").replace("@", "%40").replace(":", "%3A")
    return {password, encoded}


def everything(scene: Scene) -> dict[str, str]:
    """Whatever somebody without access to Secrets may read."""
    process = Path(f"/proc/{scene.operator.popen.pid}")
    bodies = scene.cluster.schedules.list_namespaced_custom_object(
        "tickkeeper.dev", "v1alpha1", scene.namespace, "tickschedules"
    )
    return {
        "log": scene.operator.text,
        "resources": str(bodies),
        "events": str(scene.cluster.core.list_namespaced_event(scene.namespace).items),
        "metrics": scene.operator.get("/metrics")[1],
        "probes": scene.operator.get("/livez")[1] + scene.operator.get("/readyz")[1],
        "cmdline": process.joinpath("cmdline").read_text(),
    }


def assert_nothing_leaks(scene: Scene, *passwords: str) -> None:
    for where, text in everything(scene).items():
        for password in passwords:
            for form in forms(password):
                assert form not in text, f"{form} in {where}"


@pytest.fixture
def guarded() -> Iterator[RedisServer]:
    with RedisServer(password=SECRET) as server:
        yield server


def test_e8_no_password_leaks_whatever_goes_wrong(alone: Alone, own_redis: RedisServer, guarded: RedisServer) -> None:
    with own_redis.client() as raw:
        raw.config_set("requirepass", OWN)
    own_redis.password = OWN
    scene = alone(REDIS_URL=own_redis.url)
    scene.create_ready()
    scene.secret("good", url=guarded.url)
    scene.secret("wrong", url=f"redis://127.0.0.1:{guarded.port}/0", password=WRONG)
    scene.secret("away", url=f"redis://:{forms(SECRET).difference({SECRET}).pop()}@127.0.0.1:1/0")
    scene.secret("odd", url=f"redis://:{SECRET}@[::1", password=WRONG)
    for name in ("good", "wrong", "away", "odd"):
        scene.create(name, tenant=name, redis={"secretRef": {"name": name}})
    scene.until_condition("Ready", "True", name="good")
    scene.until_condition("Ready", "False", "RedisUnreachable", name="wrong")
    scene.until_condition("Ready", "False", "RedisUnreachable", name="away")
    scene.until_condition("Ready", "False", "ReferenceNotFound", name="odd")

    for server, name in ((own_redis, "acme"), (guarded, "good")):
        server.freeze()
        try:
            scene.until_condition("Ready", "False", "RedisUnreachable", name=name)
        finally:
            server.thaw()
        scene.until_condition("Ready", "True", name=name)
        server.kill()
        scene.until_condition("Ready", "False", "RedisUnreachable", name=name)
        server.start()
        scene.until_condition("Ready", "True", name=name)
        with server.client() as raw:
            raw.config_set("requirepass", "another-one")
            raw.client_kill_filter(skipme=True, _type="normal")
            scene.until_condition("Ready", "False", "RedisUnreachable", says="password", name=name)
            raw.config_set("requirepass", server.password)
            scene.until_condition("Ready", "True", name=name)
    scene.patch("good", redis={"secretRef": {"name": "away"}})
    scene.until_condition("Ready", "False", "RedisUnreachable", name="good")
    assert_nothing_leaks(scene, OWN, SECRET, WRONG)
    for name in ("good", "wrong", "away", "odd"):
        scene.delete(name)
    for name in ("good", "wrong", "away", "odd"):
        scene.until_gone(name, 30)
    assert_nothing_leaks(scene, OWN, SECRET, WRONG)
    assert scene.operator.terminate() == 0
    assert not any(form in scene.operator.text for form in forms(OWN) | forms(SECRET) | forms(WRONG))


def test_logs_name_the_redis_by_its_address(alone: Alone, own_redis: RedisServer) -> None:
    scene = alone()
    scene.create_ready()
    own_redis.kill()
    scene.until_condition("Ready", "False", "RedisUnreachable")
    address = f"redis://127.0.0.1:{own_redis.port}/0"
    assert [line["redis"] for line in scene.operator.events("redis_up")] == [address]
    assert [line["redis"] for line in scene.operator.events("redis_away")] == [address]
