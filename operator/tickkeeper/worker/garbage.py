"""When cycles of garbage are looked for: seldom by the number of objects, often by the bytes that they may hold."""

import gc

#: New objects until the first generation is looked through, and rounds until the second and the third are.
_THRESHOLDS = 20_000, 10, 10
#: Bytes of payloads handled until it is looked through in any case.
_BYTES = 32 * 1024 * 1024


def spare() -> None:
    """Set the process up for rows; once all modules are loaded.

    A batch makes thousands of objects that reference counting frees. Looking through them every 700 objects, and
    through all modules now and then, took a sixth of a drain.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


class Garbage:
    """Told of what was handled: a handler's cycle of a dozen objects may hold a large payload."""

    def __init__(self) -> None:
        self._bytes = 0

    def handled(self, size: int) -> None:
        """``size``: bytes of payloads."""
        self._bytes += size
        if self._bytes >= _BYTES:
            self._bytes = 0
            gc.collect(1)
