import asyncio

import pytest

from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.bullmq.clients import RedisSettings
from tickkeeper.controller.kube import Gone, Secret
from tickkeeper.controller.references import ReferenceNotFound, References, settings_of

URL = "redis://redis.apps:6380/2"
OWN = RedisSettings(url="redis://own:6379/0")
KEY = ("apps", "redis")


def spec(name=None):
    reference = {"redis": {"secretRef": {"name": name}}} if name else {}
    return TickScheduleSpec.parse({"tenant": "acme", "jobName": "drain", "everyMs": 10, **reference})


# --- what a Secret says ---


def test_a_url_is_enough():
    settings = settings_of({"url": f"  {URL}\n"})
    assert str(settings.address) == URL
    assert (settings.username, settings.password) == (None, None)


def test_all_keys_are_used():
    settings = settings_of({"url": URL, "username": "tick", "password": "s3cret"})
    assert settings.username == "tick"
    assert settings.password.get_secret_value() == "s3cret"


@pytest.mark.parametrize("empty", ["username", "password", "ca.crt", "tls.crt", "tls.key"])
def test_an_empty_key_counts_as_absent(empty):
    assert settings_of({"url": URL, empty: ""}) == settings_of({"url": URL})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "url"),
        ({"url": ""}, "url"),
        ({"url": "   "}, "url"),
        ({"url": "hunter2"}, "url"),
        ({"url": "ftp://u:hunter2@h"}, "url"),
        ({"url": "redis://:hunter2@"}, "url"),
        ({"url": "redis://:hunter2@h:0x10"}, "url"),
        ({"url": "redis://:hunter2@h/x"}, "url"),
        ({"url": "redis://:hunter2@h?db=1"}, "url"),
        ({"url": "redis://:hunter2@[::1"}, "url"),
        ({"url": URL, "tls.crt": "hunter2"}, "tls.crt"),
        ({"url": URL, "tls.key": "hunter2"}, "tls.crt"),
        ({"url": URL, "ca.crt": "hunter2"}, "ca.crt"),
        ({"url": "rediss://h", "ca.crt": "hunter2"}, "ca.crt"),
        ({"url": "rediss://h", "tls.crt": "hunter2", "tls.key": "hunter2"}, "tls.crt"),
    ],
)
def test_what_is_wrong_is_told_by_its_key_and_never_its_value(data, says):
    with pytest.raises(ReferenceNotFound, match=says.replace(".", r"\.")) as raised:
        settings_of(data)
    assert "hunter2" not in str(raised.value)
    assert "\n" not in str(raised.value)


# --- reading, keeping, reading again ---


class FakeKube:
    def __init__(self, **data):
        self.secrets = {"redis": data} if data else {}
        self.reads = 0

    async def read_secret(self, namespace, name):
        self.reads += 1
        if namespace != "apps" or name not in self.secrets:
            raise Gone("the API server answered 404 Not Found")
        return Secret(self.secrets[name], str(self.reads))


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


async def test_without_a_reference_it_is_the_operators_own():
    references = References(FakeKube(), OWN)
    assert await references.resolve("apps", spec()) is OWN
    with pytest.raises(ReferenceNotFound, match="TICKKEEPER_REDIS_URL"):
        await References(FakeKube(), None).resolve("apps", spec())


async def test_a_secret_is_read_once_for_half_a_minute(clock):
    kube = FakeKube(url=URL)
    references = References(kube, None, clock)
    assert references.is_stale(KEY)
    first = await references.resolve("apps", spec("redis"))
    clock.now += 29
    assert not references.is_stale(KEY)
    assert await references.resolve("apps", spec("redis")) == first
    assert kube.reads == 1
    clock.now += 2
    assert references.is_stale(KEY)
    kube.secrets["redis"] = {"url": "redis://moved"}
    assert (await references.resolve("apps", spec("redis"))).address != first.address


async def test_a_secret_that_is_not_there_is_looked_for_again_soon(clock):
    kube = FakeKube()
    references = References(kube, None, clock)
    with pytest.raises(ReferenceNotFound, match="there is no Secret redis in apps"):
        await references.resolve("apps", spec("redis"))
    kube.secrets["redis"] = {"url": URL}
    with pytest.raises(ReferenceNotFound):
        await references.resolve("apps", spec("redis"))
    clock.now += 3.1
    assert str((await references.resolve("apps", spec("redis"))).address) == URL


async def test_a_secret_that_is_wrong_is_named(clock):
    references = References(FakeKube(url="hunter2"), None, clock)
    with pytest.raises(ReferenceNotFound, match=r"secretRef: the Secret redis of apps: url") as raised:
        await references.resolve("apps", spec("redis"))
    assert "hunter2" not in str(raised.value)


async def test_what_redis_refused_is_read_again_at_once(clock):
    kube = FakeKube(url=URL, password="one")
    references = References(kube, None, clock)
    first = await references.resolve("apps", spec("redis"))
    kube.secrets["redis"] = {"url": URL, "password": "two"}
    references.forget(KEY)
    second = await references.resolve("apps", spec("redis"))
    assert first != second
    assert first.address == second.address


async def test_namespaces_are_apart(clock):
    references = References(FakeKube(url=URL), None, clock)
    with pytest.raises(ReferenceNotFound):
        await references.resolve("other", spec("redis"))


async def test_a_secret_whose_redis_does_not_answer_is_read_again_soon(clock):
    kube = FakeKube(url="redis://wrong")
    references = References(kube, None, clock)
    await references.resolve("apps", spec("redis"))
    references.doubt(KEY)
    kube.secrets["redis"] = {"url": URL}
    clock.now += 3.1
    assert references.is_stale(KEY)
    assert str((await references.resolve("apps", spec("redis"))).address) == URL
    references.trust(KEY)
    clock.now += 3.1
    assert not references.is_stale(KEY)


async def test_a_redis_is_found_by_its_address_where_it_is_known():
    references = References(FakeKube(url=URL), OWN)
    assert references.at(str(OWN.address)) is OWN
    assert references.at(URL) is None
    settings = await references.resolve("apps", spec("redis"))
    assert references.at(URL) == settings


async def test_what_was_known_of_a_secret_lasts_while_the_api_server_is_away(clock):
    kube = FakeKube(url=URL)
    references = References(kube, None, clock)
    first = await references.resolve("apps", spec("redis"))

    async def away(namespace, name):
        raise TimeoutError

    kube.read_secret = away
    clock.now += 60
    assert await references.resolve("apps", spec("redis")) == first


async def test_at_once_a_secret_is_read_once():
    kube = FakeKube(url=URL)
    references = References(kube, None)
    await asyncio.gather(*(references.resolve("apps", spec("redis")) for _ in range(50)))
    assert kube.reads == 1
