"""A PostgreSQL server with a data folder of its own."""

import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from embedded.errors import PartFailed
from embedded.guard import descendants
from embedded.ports import free_port
from embedded.postgres_install import (
    SUPERUSER,
    environment,
    find_postgres_bin,
    give,
    postgres_version,
    runnable_bin,
    server_user,
    superuser_password,
    template_data,
    world_reachable_folder,
)
from embedded.process import Process, RunAs, remove_folder


class Postgres:
    """One PostgreSQL on 127.0.0.1: TCP only, scram, a random password for its superuser ``postgres``.

    ``fsync`` is off unless asked for: data survive a SIGKILL of the server, not a power failure of the machine.
    ``settings`` are postgresql.conf settings, e.g. ``{"log_statement": "all"}``.
    """

    def __init__(
        self, *, port: int | None = None, fsync: bool = False, settings: dict[str, str | int | bool] | None = None
    ) -> None:
        """Describe the server; nothing is started or looked for yet."""
        self.port = port or free_port()
        self._fsync = fsync
        self._settings = settings or {}
        self._folder: Path | None = None
        self._process: Process | None = None

    @property
    def version(self) -> str:
        """E.g. ``18.6``."""
        return postgres_version(find_postgres_bin())

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """True from start until the postmaster has ended, frozen or not."""
        return self._process is not None and self._process.running

    def dsn(self, database: str = "postgres") -> str:
        """``postgresql://postgres:…@127.0.0.1:port/database``; it holds the password, so it belongs in no log."""
        return f"postgresql://{SUPERUSER}:{superuser_password()}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str | None = None, *, template: str | None = None) -> str:
        """Create a database (``name``, or a random one; a copy of ``template`` if given) and return its dsn.

        Nobody may be connected to the template meanwhile.
        """
        name = name or f"test_{secrets.token_hex(6)}"
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._execute(statement)
        return self.dsn(name)

    def drop_database(self, name_or_dsn: str) -> None:
        """Drop a database, and end the sessions in it first. Absent is fine."""
        name = name_or_dsn.rpartition("/")[2]
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def start(self) -> Self:
        """Start and return once it accepts queries."""
        binaries, run_as = runnable_bin(find_postgres_bin()), server_user()
        if self._folder is None:
            self._folder = world_reachable_folder("postgres")
            self._copy_template(template_data(binaries, run_as), run_as)
        self._process = Process(
            [binaries / "postgres", "-D", self._data],
            log=self._folder / "postgres.log",
            env=environment(),
            cwd=self._data if run_as is None else Path("/"),
            run_as=run_as,
            stop_signal=signal.SIGQUIT,
        )
        self._process.start()
        self._process.wait_until(self._answers, seconds=60)
        return self

    def stop(self, *, immediate: bool = False) -> None:
        """Shut down fast (sessions are cut), or at once without a checkpoint. Data are kept. Idempotent."""
        if self._process is not None and self._process.running:
            self.thaw()
            self._process.stop(sig=signal.SIGQUIT if immediate else signal.SIGINT)

    def close(self) -> None:
        """Stop and remove its data. Idempotent."""
        self.stop()
        if self._folder is not None:
            self._forget_shared_memory()
            remove_folder(self._folder)
            self._folder = None

    def kill(self) -> None:
        """SIGKILL the postmaster and every backend at once; ``start`` then recovers from the log as after a crash."""
        self._signal_all(signal.SIGSTOP)  # so that none starts another meanwhile
        self._signal_all(signal.SIGKILL)
        self._running().kill()

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start again, on the same port with the same data."""
        self.stop(immediate=immediate)
        self.start()

    def freeze(self) -> None:
        """SIGSTOP the postmaster and every backend: connections stay open, nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT to all of them."""
        self._signal_all(signal.SIGCONT)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop and remove."""
        self.close()

    @property
    def _data(self) -> Path:
        assert self._folder is not None
        return self._folder / "data"

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("postgres was not started")
        return self._process

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn(), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.dsn(), connect_timeout=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError as error:
            if "authentication failed" in str(error):
                raise PartFailed(f"port {self.port} is answered by another PostgreSQL") from None
            return False

    def _signal_all(self, number: signal.Signals) -> None:
        # Backends lead sessions of their own, so a group signal would not reach them.
        for pid in [self.pid, *descendants(self.pid)]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a backend that ended meanwhile

    def _copy_template(self, template: Path, run_as: RunAs | None) -> None:
        shutil.copytree(template, self._data)
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write("".join(f"{name} = {_literal(value)}\n" for name, value in self._all_settings().items()))
        give(self._data, run_as)

    def _all_settings(self) -> dict[str, str | int | bool]:
        settings: dict[str, str | int | bool] = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": self._fsync,
            "full_page_writes": self._fsync,
            "dynamic_shared_memory_type": "mmap",  # in the data folder: nothing stays in /dev/shm after SIGKILL
            "shared_buffers": "64MB",
            "max_connections": 200,
        }
        return settings | self._settings

    def _forget_shared_memory(self) -> None:
        """Remove the small System V segment that a SIGKILLed postmaster leaves; a clean shutdown leaves none."""
        try:
            segment = (self._data / "postmaster.pid").read_text(encoding="ascii").splitlines()[6].split()[1]
        except (OSError, IndexError):
            return
        if ipcrm := shutil.which("ipcrm"):
            subprocess.run([ipcrm, "-m", segment], check=False, capture_output=True)


def _literal(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
