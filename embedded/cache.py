"""What is built or installed once and kept: the user's cache folder, filled by one process at a time."""

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``tickkeeper`` under $XDG_CACHE_HOME or ~/.cache, made when absent."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tickkeeper"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cached(key: str, make: Callable[[Path], None]) -> Path:
    """The folder ``key`` of the cache; where absent, ``make`` fills a folder that is then moved in as a whole.

    Two processes do not make the same folder at once: the second waits and takes what the first made. A ``make`` that
    raises leaves nothing behind.
    """
    target = cache_folder() / key
    if target.is_dir():
        return target
    with _lock(cache_folder() / f"{key}.lock"):
        if not target.is_dir():
            for left in cache_folder().glob(f".{key}-*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            unfinished = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=cache_folder()))
            try:
                make(unfinished)
                unfinished.chmod(0o755)
                unfinished.rename(target)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return target


def say(line: str) -> None:
    """One line of progress, on standard error."""
    print(f"embedded: {line}", file=sys.stderr, flush=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that makes {path.stem}")
            started = time.monotonic()
            fcntl.flock(handle, fcntl.LOCK_EX)
            say(f"waited {time.monotonic() - started:.0f} s")
        yield  # the lock ends with the handle, and with the process if that is killed
