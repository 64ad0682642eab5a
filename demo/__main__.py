"""``python -m demo``. KEEP=1 leaves everything running until Ctrl-C; CLUSTER=current uses kubectl's cluster."""

import os
import sys

from demo.signals import Interrupted, raise_on_signals

_OFF = ("", "0", "no", "false")


def main() -> int:
    """Play it all. 0: ``demo: ok``; 1: what went wrong was told; 2: unusable settings; 128 + n: signal n."""
    keep = os.environ.get("KEEP", "").lower() not in _OFF
    cluster = os.environ.get("CLUSTER", "")
    if cluster not in ("", "current"):
        print(f"demo: CLUSTER={cluster}: must be current, or unset for the embedded API server", file=sys.stderr)
        return 2
    raise_on_signals()
    try:
        from demo.play import play  # takes a while, and Ctrl-C must end that too

        return play(keep=keep, current_cluster=cluster == "current")
    except Interrupted as interrupted:
        return 128 + interrupted.number


if __name__ == "__main__":
    sys.exit(main())
