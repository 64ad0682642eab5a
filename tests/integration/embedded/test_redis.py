import contextlib
import socket
import subprocess
from pathlib import Path

import pytest
import redis as redis_py

from embedded import MissingPart, PartFailed
from embedded import redis as part
from embedded.certificates import Authority
from embedded.proxy import Proxy
from embedded.redis import Redis


def test_it_forgets_everything_when_killed_and_comes_back_on_its_port(own_redis):
    with own_redis.client() as client:
        client.set("a", 1)
        before = own_redis.url
        own_redis.restart(kill=True)
        assert own_redis.url == before
        assert client.get("a") is None
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}


def test_it_listens_on_loopback_only(own_redis):
    with own_redis.client() as client:
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_a_frozen_server_accepts_and_answers_nothing(own_redis):
    own_redis.freeze()
    with own_redis.client(socket_timeout=0.3, retry=None) as client:
        with pytest.raises(redis_py.TimeoutError):
            client.ping()
        own_redis.thaw()
    with own_redis.client() as client:
        assert client.ping()


@pytest.mark.parametrize("password", ["s3cret", 'quote " and \\ and space # and ä'])
def test_a_password_is_required_and_in_no_process_list(password):
    with Redis(password=password) as server:
        with server.client() as client:
            assert client.ping()
        with redis_py.Redis(port=server.port, retry=None) as stranger, pytest.raises(redis_py.AuthenticationError):
            stranger.ping()
        listed = _command_lines()
        assert str(server.port) in listed
        assert password not in listed
        assert not any(password.encode() in path.read_bytes() for path in server._folder.rglob("*"))


def test_settings_reach_the_server():
    settings = {"maxmemory": "2mb", "maxmemory_policy": "allkeys-lru"}
    with Redis(**settings, args=("--hz", "50")) as server, server.client() as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
        assert client.config_get("maxmemory") == {"maxmemory": str(2 * 1024 * 1024)}
        assert client.config_get("hz") == {"hz": "50"}


def test_a_server_that_persists_keeps_its_data_over_a_restart():
    with Redis(appendonly="yes", appendfsync="always") as server, server.client() as client:
        client.set("a", 1)
        server.restart(kill=True)
        assert client.get("a") == "1"


def test_a_server_that_cannot_start_says_why():
    server = Redis(maxmemory="nonsense")
    with pytest.raises(PartFailed, match=r"(?s)ended at once.*maxmemory") as raised:
        server.start()
    assert not server.running
    server.close()
    assert "nonsense" in str(raised.value)


def test_a_missing_server_is_one_line_that_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    monkeypatch.setattr(part, "find_spec", lambda name: None)
    with pytest.raises(MissingPart, match=r"^no redis-server >= 6\.2 found: install one .*set REDIS_SERVER") as raised:
        Redis().start()
    assert "\n" not in str(raised.value)


def _fake_server(path: Path, version: str) -> Path:
    path.write_text(f"#!/bin/sh\necho Redis server v={version} sha=0\n")
    path.chmod(0o755)
    return path


def test_the_order_is_variable_then_path_then_wheel(monkeypatch, tmp_path):
    named = _fake_server(tmp_path / "named", "7.2.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    on_path = _fake_server(tmp_path / "redis-server", "6.2.0")
    monkeypatch.setenv("REDIS_SERVER", str(named))
    assert part.find_redis_server() == named
    monkeypatch.delenv("REDIS_SERVER")
    assert part.find_redis_server() == on_path
    _fake_server(on_path, "6.0.16")  # too old: passed over
    wheel = tmp_path / "wheel" / "bin" / "redis-server"
    wheel.parent.mkdir(parents=True)
    _fake_server(wheel, "8.2.3")
    spec = type("Spec", (), {"origin": str(tmp_path / "wheel" / "__init__.py")})
    monkeypatch.setattr(part, "find_spec", lambda name: spec)
    assert part.find_redis_server() == wheel
    monkeypatch.setenv("REDIS_SERVER", str(on_path))
    with pytest.raises(MissingPart, match=r"REDIS_SERVER=.* is not a redis-server >= 6.2"):
        part.find_redis_server()


def test_a_proxy_gives_it_tls_with_client_certificates(own_redis, tmp_path):
    authority, other = Authority(tmp_path), Authority(_folder(tmp_path / "other"))
    server, client = authority.server("redis"), authority.client("worker")
    stranger = other.client("worker")
    with Proxy(own_redis.port, certificate=server, client_authority=authority.certificate) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0?ssl_ca_certs={authority.certificate}"
        with redis_py.Redis.from_url(f"{url}&ssl_certfile={client.certificate}&ssl_keyfile={client.key}") as known:
            assert known.ping()
        unknown = f"{url}&ssl_certfile={stranger.certificate}&ssl_keyfile={stranger.key}"
        with redis_py.Redis.from_url(unknown, retry=None) as refused, pytest.raises(redis_py.ConnectionError):
            refused.ping()


def test_a_proxy_holds_back_and_cuts(own_redis):
    def answer(connection: socket.socket) -> bytes:
        connection.sendall(b"PING\r\n")
        return connection.recv(100)

    with Proxy(own_redis.port) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            assert answer(connection) == b"+PONG\r\n"
            proxy.hold()
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                answer(connection)
            proxy.release()
            connection.settimeout(30)
            assert connection.recv(100) == b"+PONG\r\n"
            proxy.cut()
            with pytest.raises(ConnectionError):
                answer(connection)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            assert answer(connection) == b"+PONG\r\n"
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=30)


def _command_lines() -> str:
    if not Path("/proc/self/cmdline").exists():
        return subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
