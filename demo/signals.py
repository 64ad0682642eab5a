"""Ctrl-C and its like, as one exception that is raised once."""

import os
import signal
import sys
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asks for the end; ``number`` tells which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def raise_on_signals() -> None:
    """From now on the first signal raises Interrupted in the main thread, and further ones are ignored."""
    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup is respected
            signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # What follows is the end: it is bounded in time, and must be whole.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    os.write(sys.stderr.fileno(), b"\ndemo: ending what was started\n")  # print may be in the middle of something
    raise Interrupted(number)
