"""``redis.secretRef``: found or not, readable or not, rotated, mended."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from embedded.certificates import Authority
from embedded.ports import free_port
from embedded.proxy import Proxy
from embedded.redis import Redis as RedisServer
from tests.integration.controller.scene import Scene

REFERENCE = {"secretRef": {"name": "redis"}}


def test_a_secret_names_the_redis(scene: Scene, raw: Redis, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    scene.create_ready(redis=REFERENCE)
    with own_redis.client() as theirs:
        assert scene.score(theirs) is not None
    assert scene.left(raw) == set()
    assert scene.holds("ReferencesResolved", "True", "Resolved")
    assert scene.status()["registered"]["redis"] == f"redis://127.0.0.1:{own_redis.port}/0"


def test_two_names_of_one_redis_are_one_redis(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret("by-number", url=f"redis://127.0.0.1:{own_redis.port}/0")
    scene.secret("by-name", url=f"redis://localhost:{own_redis.port}/0")
    scene.create("number", redis={"secretRef": {"name": "by-number"}})
    scene.create("name", redis={"secretRef": {"name": "by-name"}})

    def in_conflict() -> str | None:  # of two that were made within one second the uid decides
        return next(
            (each for each in ("number", "name") if scene.holds("Registered", "False", "Conflict", name=each)), None
        )

    younger = scene.until(in_conflict)
    older = "name" if younger == "number" else "number"
    scene.until_condition("Ready", "True", name=older)
    scene.delete(older)
    scene.until_gone(older)
    scene.until_condition("Ready", "True", name=younger)


def test_a_secret_that_comes_later_is_found(scene: Scene, own_redis: RedisServer) -> None:
    scene.create(redis=REFERENCE)
    condition = scene.until_condition("ReferencesResolved", "False", "ReferenceNotFound", seconds=5)
    assert f"there is no Secret redis in {scene.namespace}" in condition["message"]
    assert scene.holds("Ready", "False", "ReferenceNotFound")
    assert scene.holds("Registered", "False", "ReferenceNotFound")
    assert scene.until_event("ReferenceNotFound").type == "Warning"
    scene.secret(url=own_redis.url)
    scene.until_condition("Ready", "True", seconds=10)
    scene.told_once("ReferenceNotFound")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"other": "hunter2"}, "no key url"),
        ({"url": ""}, "no key url"),
        ({"url": "hunter2"}, "url must begin with"),
        ({"url": "http://:hunter2@example.com"}, "url must begin with"),
        ({"url": "redis://:hunter2@"}, "url must name a host"),
        ({"url": "redis://:hunter2@h:99999"}, "url must have a port"),
        ({"url": "redis://:hunter2@h/zero"}, "url must end in a database number"),
        ({"url": "redis://:hunter2@h/0?socket_timeout=9"}, "url must have no options"),
        ({"url": "redis://:hunter2@[::1"}, "url "),
        ({"url": "redis://:hunter2@h/0", "tls_crt": "hunter2"}, "tls.crt and tls.key must be given together"),
        ({"url": "redis://:hunter2@h/0", "ca_crt": "hunter2"}, "need a url that begins with rediss"),
        ({"url": "rediss://:hunter2@127.0.0.1:1/0", "ca_crt": "hunter2"}, "ca.crt"),
        ({"url": "rediss://:hunter2@127.0.0.1:1/0", "tls_crt": "hunter2", "tls_key": "hunter2"}, "tls.crt"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_an_unreadable_secret_is_told_by_key_and_rule_never_by_value(
    scene: Scene, data: dict[str, str], says: str
) -> None:
    scene.secret(**data)
    scene.create(redis=REFERENCE)
    condition = scene.until_condition("ReferencesResolved", "False", "ReferenceNotFound", seconds=5)
    assert condition["message"].startswith("spec.redis.secretRef: the Secret redis of ")
    assert says in condition["message"]
    assert "hunter2" not in str(scene.status())
    assert "hunter2" not in str(scene.events())
    assert "hunter2" not in scene.operator.text
    assert scene.operator.running


def test_e4_a_mended_secret_makes_it_healthy_soon(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url="nonsense")
    scene.create(redis=REFERENCE)
    scene.until_condition("Ready", "False", "ReferenceNotFound")
    scene.secret(url=own_redis.url)
    scene.until_condition("Ready", "True", seconds=10)


def test_e4_a_secret_that_named_the_wrong_place_is_mended_soon(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url=f"redis://127.0.0.1:{free_port()}/0")
    scene.create(redis=REFERENCE)
    scene.until_condition("Ready", "False", "RedisUnreachable")
    scene.secret(url=own_redis.url)
    scene.until_condition("Ready", "True", seconds=10)


def test_a_secret_that_vanishes_and_returns_leaves_the_scheduler_ticking(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    scene.create_ready(redis=REFERENCE)
    scene.cluster.core.delete_namespaced_secret("redis", scene.namespace)
    scene.until_condition("ReferencesResolved", "False", "ReferenceNotFound", seconds=45)
    with own_redis.client() as theirs:
        assert scene.score(theirs) is not None
    assert scene.status()["registered"]["schedulerId"] == "drain.acme"
    scene.secret(url=own_redis.url)
    scene.until_condition("Ready", "True", seconds=10)
    assert scene.heals() == 0


@pytest.fixture
def guarded() -> Iterator[RedisServer]:
    with RedisServer(password="s3cret-one") as server:
        yield server


def _bare(server: RedisServer) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


def test_a_wrong_password_is_told_and_the_right_one_mends_it(scene: Scene, guarded: RedisServer) -> None:
    scene.secret(url=_bare(guarded), password="wr0ng-one")
    scene.create(redis=REFERENCE)
    scene.until_condition(
        "Registered", "False", "RedisUnreachable", says="refused the user name or password", seconds=5
    )
    assert scene.holds("Ready", "False", "RedisUnreachable")
    scene.secret(url=_bare(guarded), password="s3cret-one")
    scene.until_condition("Ready", "True", seconds=10)
    with guarded.client() as raw:
        assert scene.score(raw) is not None
    assert "wr0ng-one" not in scene.operator.text
    assert "s3cret-one" not in scene.operator.text


def test_no_password_where_one_is_wanted_is_told(scene: Scene, guarded: RedisServer) -> None:
    scene.secret(url=_bare(guarded))
    scene.create(redis=REFERENCE)
    scene.until_condition("Registered", "False", "RedisUnreachable", says="password", seconds=5)


def test_e3_b9_a_rotated_password_is_picked_up_without_a_restart(scene: Scene, guarded: RedisServer) -> None:
    scene.secret(url=_bare(guarded), password="s3cret-one")
    scene.create_ready(redis=REFERENCE)
    with guarded.client() as raw:
        slot = scene.score(raw)
        raw.config_set("requirepass", "s3cret-two")
        raw.client_kill_filter(skipme=True, _type="normal")
        scene.until_condition(
            "Registered", "False", "RedisUnreachable", says="refused the user name or password", seconds=5
        )
        scene.secret(url=_bare(guarded), password="s3cret-two")
        scene.until_condition("Ready", "True", seconds=10)
        assert scene.score(raw) == slot
    assert scene.heals() == 0
    scene.told_once("RedisRecovered")
    for password in ("s3cret-one", "s3cret-two"):
        assert password not in scene.operator.text
        assert password not in str(scene.events())


def test_a_password_rotated_in_the_secret_first_is_used_from_then_on(scene: Scene, guarded: RedisServer) -> None:
    # Redis 6 users may have two passwords while a rotation is under way.
    with guarded.client() as raw:
        raw.acl_setuser("default", enabled=True, passwords=["+s3cret-one", "+s3cret-two"])
        scene.secret(url=_bare(guarded), password="s3cret-one")
        scene.create_ready(redis=REFERENCE)
        scene.secret(url=_bare(guarded), password="s3cret-two")
        scene.until(lambda: scene.operator.text.count('"redis_up"') >= 1)
        raw.acl_setuser("default", enabled=True, passwords=["-s3cret-one"])
        raw.client_kill_filter(skipme=True, _type="normal")
    guarded.password = "s3cret-two"
    with guarded.client() as raw:
        raw.delete(scene.key("repeat"))
        scene.until(lambda: scene.score(raw) is not None, 10)
    scene.until_condition("Ready", "True", seconds=10)


def test_username_and_password_keys_win_over_the_urls(scene: Scene, guarded: RedisServer) -> None:
    with guarded.client() as raw:
        raw.acl_setuser("tick", enabled=True, passwords=["+us3rs-one"], keys=["*"], categories=["+@all"])
        scene.secret(url=f"redis://nobody:n0body-one@127.0.0.1:{guarded.port}/0", username="tick", password="us3rs-one")
        scene.create_ready(redis=REFERENCE)
        assert any(client["user"] == "tick" for client in raw.client_list())


def test_a_user_without_permissions_is_told(scene: Scene, guarded: RedisServer) -> None:
    with guarded.client() as raw:
        raw.acl_setuser("poor", enabled=True, passwords=["+p00r-one"], keys=["other:*"], categories=["+@all"])
        scene.secret(url=_bare(guarded), username="poor", password="p00r-one")
        scene.create(redis=REFERENCE)
        scene.until_condition("Registered", "False", "RedisUnreachable", says="permission", seconds=5)
        raw.acl_setuser("poor", keys=["*"])
        scene.until_condition("Ready", "True", seconds=10)
    assert scene.heals() == 0


def test_a_user_with_no_more_than_its_keys_keeps_its_schedules(scene: Scene, guarded: RedisServer) -> None:
    # No INFO and no CLIENT LIST: the policy and the workers stay unknown, the schedules are kept all the same.
    with guarded.client() as raw:
        raw.acl_setuser(
            "small",
            enabled=True,
            passwords=["+sm4ll-one"],
            keys=[f"{scene.prefix}:*"],
            categories=["+@all", "-@admin", "-@dangerous"],
        )
        scene.secret(url=_bare(guarded), username="small", password="sm4ll-one")
        scene.create_ready(redis=REFERENCE)
        assert scene.holds("Ready", "True", "Ready")
        assert scene.holds("RedisSafe", "Unknown")
        raw.zrem(scene.key("repeat"), "drain.acme")
        scene.until(lambda: scene.heals() == 1, 10)


def test_tls_with_an_authority_and_a_client_certificate_of_the_secret(
    scene: Scene, own_redis: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    server, ours = authority.server("redis"), authority.client("operator")
    with Proxy(own_redis.port, certificate=server, client_authority=authority.certificate) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0"
        ours_pem = {"tls_crt": ours.certificate.read_text(), "tls_key": ours.key.read_text()}
        scene.secret(url=url, ca_crt=other.certificate.read_text(), **ours_pem)
        scene.create(redis=REFERENCE)
        scene.until_condition("Registered", "False", "RedisUnreachable", says="(?i)certificate", seconds=5)
        scene.secret(url=url, ca_crt=authority.certificate.read_text(), **ours_pem)
        scene.until_condition("Ready", "True", seconds=10)
        assert scene.status()["registered"]["redis"] == url
        with own_redis.client() as raw:
            slot = scene.score(raw)
            raw.flushall()
            scene.until(lambda: scene.score(raw) == slot, 10)
    assert ours.key.read_text().splitlines()[1] not in scene.operator.text


def test_schedules_of_one_secret_share_one_connection(scene: Scene, own_redis: RedisServer) -> None:
    scene.secret(url=own_redis.url)
    names = [f"s{number}" for number in range(10)]
    for name in names:
        scene.create(name, tenant=name, redis=REFERENCE)
    for name in names:
        scene.until_condition("Ready", "True", name=name)
    with own_redis.client() as raw:
        ours = [each["name"] for each in raw.client_list() if each["name"].startswith("tickkeeper-")]
        assert ours.count("tickkeeper-feed") == 1
        assert len(ours) <= 1 + 16 + 1  # the lanes of one pass at most
        for name in names:
            scene.delete(name)
        for name in names:
            scene.until_gone(name)
        scene.until(
            lambda: not [each for each in raw.client_list() if each["name"].startswith("tickkeeper-")],
            what="an idle Redis is let go",
        )
