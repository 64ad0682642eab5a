"""Ends the parts and removes their folders when the process that started them is gone, however it went.

A guard is one small process in a session of its own that holds the reading end of a pipe. Every started process and
every temporary folder is told to it; on end of file (SIGKILL, SIGTERM, a crash of the owner) it ends what is still on
its list. This was taken over PR_SET_PDEATHSIG, which fires when the starting *thread* ends, knows nothing of folders,
is lost when the user id changes, and exists on Linux only.

Run as a script (``python guard.py``) this module is the guard, and then imports nothing but the standard library.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_GRACE_S = 5.0


class Guard:
    """The owner's side: starts the guard on first use and tells it what to watch. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, pid: int, stop_signal: int) -> None:
        """Have process ``pid`` ended by ``stop_signal``, then SIGKILL, when this process is gone."""
        self._tell("watch", pid, int(stop_signal))

    def unwatch(self, pid: int) -> None:
        """Forget process ``pid``: it has ended."""
        self._tell("unwatch", pid)

    def remove(self, folder: Path) -> None:
        """Have ``folder`` removed when this process is gone."""
        self._tell("remove", str(folder))

    def keep(self, folder: Path) -> None:
        """Forget ``folder``: it is already removed."""
        self._tell("keep", str(folder))

    def close(self) -> None:
        """End the guard; what is still on its list is ended first."""
        with self._lock:
            if self._process is None:
                return
            with contextlib.suppress(OSError):
                self._process.communicate(timeout=2 * _GRACE_S)
            self._process = None

    def _tell(self, *words: str | int) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(__file__).resolve())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            self._process.stdin.flush()


def _main() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    processes: dict[int, int] = {}
    folders: dict[str, None] = {}
    for words in _words_until_owner_is_gone():
        match words:
            case ["watch", int(pid), int(number)]:
                processes[pid] = number
            case ["unwatch", int(pid)]:
                processes.pop(pid, None)
            case ["remove", str(folder)]:
                folders[folder] = None
            case ["keep", str(folder)]:
                folders.pop(folder, None)
    _end(processes)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _words_until_owner_is_gone() -> Iterator[list[str | int]]:
    owner, buffer = os.getppid(), b""
    while True:
        # The parent is polled too: a fork of the owner may hold the pipe open for ever.
        ready, _, _ = select.select([0], [], [], 1.0)
        if ready:
            chunk = os.read(0, 65_536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)
        elif os.getppid() != owner:
            return


def _end(processes: dict[int, int]) -> None:
    """Stop in reverse order of starting; frozen processes are woken to hear it."""
    for pid, number in reversed(processes.items()):
        _send(pid, number)
        for each in (pid, *descendants(pid)):
            _send(each, signal.SIGCONT)
    deadline = time.monotonic() + _GRACE_S
    left = set(processes)
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if alive(pid)}
        time.sleep(0.02)
    for pid in left:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    # Each watched process leads a group of its own. Its group comes second: PostgreSQL's postmaster must see the
    # signal itself, and whatever a part started is not to outlive it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
    if number in (signal.SIGKILL, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def descendants(pid: int) -> list[int]:
    """The ids of all processes below ``pid``, parents first."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def _parents() -> Iterator[tuple[int, int]]:
    if not Path("/proc/self/stat").exists():
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True)
        for line in table.stdout.splitlines():
            child, parent = line.split()
            yield int(child), int(parent)
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The second field is the name in brackets and may hold anything, so count from the last bracket.
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    """True while process ``pid`` runs or is frozen; one that ended and was not reaped does not count."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return True


if __name__ == "__main__":
    _main()
