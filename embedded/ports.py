"""Free TCP ports on 127.0.0.1."""

import random
import socket
from pathlib import Path

from embedded.errors import PartFailed

_LOWEST = 15_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def free_port() -> int:
    """Return a TCP port that nobody listens on and that this process has not given out before.

    It lies below the ephemeral range. Inside it a client that keeps reconnecting to a server which is down can be
    given the server's own port as its source and so connect to itself, and the server cannot come back on that port.
    """
    for _ in range(1000):
        port = random.randrange(_LOWEST, _first_ephemeral())
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise PartFailed(f"no free TCP port on 127.0.0.1 between {_LOWEST} and {_first_ephemeral() - 1}")


def is_free(port: int) -> bool:
    """True when a server could listen on 127.0.0.1:port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_open(port: int) -> bool:
    """True when something accepts connections on 127.0.0.1:port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _first_ephemeral() -> int:
    try:
        first = int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32_768
    return first if first > _LOWEST + 1000 else 32_768
