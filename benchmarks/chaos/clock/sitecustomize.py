"""A clock that somebody steps: ``time.time`` and ``time.time_ns`` are ahead by the seconds in the file CHAOS_CLOCK.

Python imports this module before anything else where its folder is on PYTHONPATH. The monotonic clock goes on as it
does when a machine's clock is stepped. ``datetime.now`` is not stepped: it is the interpreter's own, and a worker asks
it only where a handler puts a row off to a certain time.
"""

import os
import time

_EVERY = 0.05
_real, _real_ns, _monotonic = time.time, time.time_ns, time.monotonic
_path = os.environ.get("CHAOS_CLOCK", "")


class _Ahead:
    def __init__(self) -> None:
        self._seconds = 0.0
        self._read = 0.0

    def seconds(self) -> float:
        now = _monotonic()
        if now - self._read > _EVERY:
            self._read = now
            try:
                with open(_path) as file:  # noqa: PTH123 - pathlib is not to be imported before everything else
                    self._seconds = float(file.read() or 0)
            except (OSError, ValueError):
                self._seconds = 0.0
        return self._seconds


if _path:
    _ahead = _Ahead()
    time.time = lambda: _real() + _ahead.seconds()
    time.time_ns = lambda: _real_ns() + int(_ahead.seconds() * 1e9)
