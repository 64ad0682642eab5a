"""The programs that a run needs, and running them."""

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_NEEDED = {
    "docker": "Docker (the engine must run and you must be allowed to use it)",
    "kind": "kind",
    "kubectl": "kubectl",
    "helm": "Helm 3.17 or newer",
}


class Lacking(RuntimeError):
    """This machine cannot run it; the message says, in one line, what it lacks."""


class Failed(RuntimeError):
    """A program failed; the message has its last words."""


def check() -> None:
    """Raises Lacking with everything that is missing."""
    missing = [what for program, what in _NEEDED.items() if shutil.which(program) is None]
    if "docker" not in {program for program in _NEEDED if shutil.which(program) is None}:
        done = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            missing.append(f"a Docker engine that answers ({done.stderr.strip().splitlines()[-1:] or 'no answer'})")
    if missing:
        raise Lacking(f"this machine lacks: {'; '.join(missing)}")


def run(
    *argv: str | Path,
    stdin: str = "",
    seconds: float = 300,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises Failed with the end of what it said."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=None if env is None else dict(env),
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{_shown(argv)}: not ended within {seconds:.0f} s") from None
    if check and done.returncode != 0:
        raise Failed(f"{_shown(argv)} (exit {done.returncode}): {(done.stderr or done.stdout).strip()[-2000:]}")
    return done


def say(line: str) -> None:
    """One line of progress."""
    print(f"e2e {time.strftime('%H:%M:%S')} {line}", flush=True)


def _shown(argv: Sequence[str | Path]) -> str:
    text = " ".join(map(str, argv))
    return text if len(text) < 200 else f"{text[:199]}…"
