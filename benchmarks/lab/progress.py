"""One line for each step, on standard error."""

import sys
import time

_STARTED = time.monotonic()


def say(line: str) -> None:
    """Print it with the seconds since the start."""
    print(f"[{time.monotonic() - _STARTED:6.0f} s] {line}", file=sys.stderr, flush=True)
