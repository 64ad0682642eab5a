import socket
from pathlib import Path

from embedded.ports import free_port, is_free


def test_a_port_is_given_once_and_lies_below_the_ephemeral_range():
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == 200
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(ephemeral.read_text().split()[0]) if ephemeral.exists() else 32_768
    assert all(1024 < port < max(first, 16_000) for port in ports)


def test_a_port_in_use_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)
