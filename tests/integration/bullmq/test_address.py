"""What two addresses of one Redis are known by."""

import pytest

from tickkeeper.bullmq.address import parse
from tickkeeper.bullmq.clients import RedisSettings


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://localhost:6379/0",
        "redis://LOCALHOST",
        "redis://localhost.:6379",
        "redis://[::1]:6379/0",
        "redis://127.0.0.2",
        "redis://user:secret@localhost",
    ],
)
def test_loopback_names_are_one_server(url: str) -> None:
    assert str(parse(url).address) == "redis://127.0.0.1:6379/0"


def test_the_order_of_sentinels_and_nodes_does_not_matter() -> None:
    one, two = (f"redis+sentinel://{hosts}/mymaster" for hosts in ("b:1,a:2,a:1", "a:1,a:2,b:1"))
    assert str(parse(one).address) == str(parse(two).address) == "redis+sentinel://a:1,a:2,b:1/mymaster/0"
    assert parse(one).address.hosts == (("b", 1), ("a", 2), ("a", 1)), "they are asked in the order given"


def test_what_differs_is_another_server() -> None:
    urls = ["redis://a", "redis://b", "redis://a:1", "redis://a/1", "rediss://a", "redis+cluster://a"]
    assert len({str(parse(url).address) for url in urls}) == len(urls)


def test_a_node_is_reached_by_the_name_that_the_cluster_gives_it() -> None:
    settings = RedisSettings(url="redis+cluster://:secret@localhost:7000")
    node = settings.of_node("localhost", 7001)
    assert node.address.hosts == (("localhost", 7001),)
    assert node.login() == (None, "secret")
