"""Where a Redis is: what a URL says, without credentials."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import unquote, urlsplit

Mode = Literal["single", "sentinel", "cluster"]

_SCHEMES: dict[str, tuple[Mode, bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_DEFAULT_PORTS: dict[Mode, int] = {"single": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis database's place.

    ``hosts`` are (host, port) pairs: of the server, of the sentinels, or of some of the cluster's nodes. ``str()`` of
    it is safe to show, and is what two addresses of one Redis are known by: whichever loopback name, whichever order.
    """

    mode: Mode
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    db: int = 0
    #: the name that sentinels know the master by
    master: str | None = None

    def __str__(self) -> str:
        return self._written(sorted(("127.0.0.1" if _is_loopback(host) else host, port) for host, port in self.hosts))

    @property
    def url(self) -> str:
        """What it was read from, without credentials."""
        return self._written(self.hosts)

    def _written(self, hosts: Iterable[tuple[str, int]]) -> str:
        scheme = "rediss" if self.tls else "redis"
        mode = "" if self.mode == "single" else f"+{self.mode}"
        places = ",".join(f"{_bracketed(host)}:{port}" for host, port in hosts)
        path = {"single": f"/{self.db}", "sentinel": f"/{self.master}/{self.db}", "cluster": ""}[self.mode]
        return f"{scheme}{mode}://{places}{path}"


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """A URL taken apart. ``repr`` hides the credentials."""

    address: Address
    username: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"ParsedUrl({self.address})"


def parse(url: str) -> ParsedUrl:
    """Read ``scheme://[user[:password]@]host[:port][,host[:port]…][/path]``.

    The path is ``/db`` for a single server, ``/master[/db]`` for sentinels and empty for a cluster. Raises ValueError
    with the rule, never with the URL: what would otherwise be ignored in silence is refused.
    """
    try:
        split = urlsplit(url)
    except ValueError:
        raise ValueError("url cannot be read: brackets must hold an IPv6 address") from None
    if split.scheme not in _SCHEMES:
        raise ValueError(f"url must begin with one of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}")
    if split.query or split.fragment:
        raise ValueError("url must have no options after ? or #: time-outs and retries are set by the program")
    mode, tls = _SCHEMES[split.scheme]
    login, _, places = split.netloc.rpartition("@")
    username, _, password = login.partition(":")
    hosts = tuple(_host(place, _DEFAULT_PORTS[mode]) for place in places.split(","))
    if mode == "single" and len(hosts) > 1:
        raise ValueError("url must name one host: several are for redis+sentinel:// and redis+cluster://")
    master, db = _path(split.path.strip("/"), mode)
    return ParsedUrl(Address(mode, tls, hosts, db, master), unquote(username) or None, unquote(password) or None)


def _host(place: str, default_port: int) -> tuple[str, int]:
    try:
        split = urlsplit(f"//{place}")
        host, port = split.hostname, split.port
    except ValueError:
        raise ValueError("url must have a port from 1 to 65535 after each host") from None
    if not host or port == 0:
        raise ValueError("url must name a host, and a port from 1 to 65535")
    return unquote(host), port or default_port


def _path(path: str, mode: Mode) -> tuple[str | None, int]:
    master, _, rest = path.partition("/") if mode == "sentinel" else ("", "", path)
    if mode == "sentinel" and not master:
        raise ValueError("url must name the sentinels' master, like redis+sentinel://host:26379/mymaster")
    if mode == "cluster" and rest not in ("", "0"):
        raise ValueError("url must name no database: a Redis Cluster has only 0")
    if rest and not (rest.isascii() and rest.isdigit() and len(rest) < 6):
        raise ValueError("url must end in a database number, like /0")
    return master or None, int(rest or 0)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".") == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
