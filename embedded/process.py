"""Starting, watching and ending processes and temporary folders."""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedded.errors import PartFailed
from embedded.guard import Guard, descendants

_LOG_TAIL = 2_000


def wait_for(condition: Callable[[], object], *, seconds: float, what: str, interval: float = 0.02) -> None:
    """Return once ``condition()`` is true; raise PartFailed naming ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise PartFailed(f"{what}: not within {seconds:g} s")
        time.sleep(interval)


@dataclass(frozen=True, slots=True)
class RunAs:
    """The user that a process runs under, where it is not ours."""

    uid: int
    gid: int


class Process:
    """One server process: in a session of its own (Ctrl-C does not reach it), its output in a log file."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bytes | None = None,
        run_as: RunAs | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Describe the process; ``stdin`` is written to it once and closed, and never shown anywhere."""
        self._argv = [str(word) for word in argv]
        self._log = log
        self._env = dict(os.environ if env is None else env)
        self._cwd = cwd
        self._stdin = stdin
        self._run_as = run_as
        self.stop_signal = stop_signal
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """The program's file name."""
        return Path(self._argv[0]).name

    @property
    def pid(self) -> int:
        """The process id; PartFailed when it was not started or has been stopped."""
        if self._popen is None:
            raise PartFailed(f"{self.name} is not running")
        return self._popen.pid

    @property
    def running(self) -> bool:
        """True from start until the process has ended, frozen or not."""
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> None:
        """Start it; PartFailed when it runs already or the program cannot be executed."""
        if self.running:
            raise PartFailed(f"{self.name} is running already (process {self.pid})")
        try:
            with self._log.open("ab") as log:
                self._popen = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.DEVNULL if self._stdin is None else subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    cwd=self._cwd,
                    user=None if self._run_as is None else self._run_as.uid,
                    group=None if self._run_as is None else self._run_as.gid,
                    extra_groups=None if self._run_as is None else [],
                    start_new_session=True,
                )
        except OSError as error:
            raise PartFailed(f"{self._argv[0]} cannot be started: {error.strerror or error}") from error
        _watch(self)
        if self._stdin is not None:
            assert self._popen.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.write(self._stdin)
                self._popen.stdin.close()

    def wait_until(self, ready: Callable[[], object], *, seconds: float) -> None:
        """Return once ``ready()`` is true.

        Where the process ends before, the time runs out, or ``ready`` raises, it is killed; PartFailed holds the end
        of its log.
        """

        def ready_while_running() -> bool:
            if not self.running:
                raise PartFailed(f"{self.name} ended at once (exit {self._exit()})")
            return bool(ready())

        try:
            wait_for(ready_while_running, seconds=seconds, what=f"{self.name} ready")
        except PartFailed as error:
            self.kill()
            raise PartFailed(f"{error}: {self.log_tail()}") from None
        except BaseException:  # Ctrl-C too: whoever waits for a server has no handle to end it by yet
            self.kill()
            raise

    def stop(self, *, seconds: float = 10, sig: signal.Signals | None = None) -> None:
        """Ask it to end (its own stop signal, or ``sig``), insist with SIGKILL after ``seconds``. Idempotent."""
        if self._popen is None:
            return
        if self.running:
            self.signal(sig or self.stop_signal)
            for pid in (self.pid, *descendants(self.pid)):  # a frozen child would not hear that it is to end
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)
            try:
                self._popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self._kill_group()
        self._reap()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Idempotent."""
        if self._popen is None:
            return
        self._kill_group()
        self._reap()

    def freeze(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send one signal to the process itself; an ended process is left alone."""
        if self.running:
            os.kill(self.pid, number)

    def log_tail(self) -> str:
        """The end of its log, for error messages."""
        try:
            text = self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return text[-_LOG_TAIL:].strip() or "(empty log)"

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _reap(self) -> None:
        assert self._popen is not None
        self._popen.wait()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        _unwatch(self)
        self._popen = None

    def _exit(self) -> int | None:
        return None if self._popen is None else self._popen.returncode


def make_folder(name: str, *, parent: Path | None = None) -> Path:
    """A fresh folder, mode 0700, removed by ``remove_folder`` or at the end of this process, however that ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"tickkeeper-{name}-", dir=parent))
    _state().folders[folder] = None
    _state().guard.remove(folder)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder made by ``make_folder``. Idempotent."""
    shutil.rmtree(folder, ignore_errors=True)
    if _state().folders.pop(folder, "absent") is None:
        _state().guard.keep(folder)


class _State:
    """What this process has started. A fork of it starts with nothing: the servers are not the fork's to end."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.guard = Guard()
        self.processes: dict[int, Process] = {}
        self.folders: dict[Path, None] = {}


_current = _State()
_inherited: list[_State] = []


def _state() -> _State:
    global _current  # noqa: PLW0603 - one list per process
    if _current.owner != os.getpid():
        _inherited.append(_current)  # kept alive, so that its pipe is not closed by the collector
        _current = _State()
    return _current


def _watch(process: Process) -> None:
    _state().processes[process.pid] = process
    _state().guard.watch(process.pid, process.stop_signal)


def _unwatch(process: Process) -> None:
    if _state().processes.pop(process.pid, None) is not None:
        _state().guard.unwatch(process.pid)


@atexit.register
def _at_exit() -> None:
    for process in reversed(list(_state().processes.values())):
        process.stop(seconds=5)
    for folder in list(_state().folders):
        remove_folder(folder)
    _state().guard.close()
