"""PgBouncer in transaction mode in front of a PostgreSQL of these tests."""

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psycopg

from embedded.errors import MissingPart
from embedded.ports import free_port
from embedded.postgres import Postgres
from embedded.postgres_install import environment, give, server_user, world_reachable_folder
from embedded.process import Process, remove_folder


def find_pgbouncer() -> Path:
    """$PGBOUNCER, else one on PATH; MissingPart with the remedy."""
    found = os.environ.get("PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if not found:
        raise MissingPart("no pgbouncer found: install one (apt-get install pgbouncer, brew install pgbouncer)")
    return Path(found)


class Pooler:
    """Lends ``size`` sessions of the server, each for one transaction at a time."""

    def __init__(self, server: Postgres, *, size: int) -> None:
        self._server = server
        self._size = size
        self._port = free_port()
        self._folder = world_reachable_folder("pgbouncer")
        self._process: Process | None = None

    def dsn(self, dsn: str) -> str:
        """The dsn of a database of the server, by way of the pooler."""
        return dsn.replace(f":{self._server.port}/", f":{self._port}/")

    def __enter__(self) -> Self:
        run_as = server_user()
        home = self._folder / "run"
        home.mkdir(mode=0o700)
        there = urlsplit(self._server.dsn())
        users = home / "users.txt"
        users.touch(mode=0o600)
        users.write_text(f'"{there.username}" "{there.password}"\n', encoding="ascii")
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": users,
            "pool_mode": "transaction",
            "default_pool_size": self._size,
            "max_client_conn": 100,
            "server_round_robin": 1,
        }
        config = home / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self._server.port}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items()),
            encoding="ascii",
        )
        give(home, run_as)
        self._process = Process(
            [find_pgbouncer(), config], log=self._folder / "log", env=environment(), cwd=Path("/"), run_as=run_as
        )
        self._process.start()
        self._process.wait_until(self._answers, seconds=20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop()
        remove_folder(self._folder)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn(self._server.dsn()), connect_timeout=2, prepare_threshold=None) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False
