"""What handlers have seen: arrays of numbers, written to a file now and then, so that a call costs one append."""

import os
import threading
import time
from array import array
from pathlib import Path

_EVERY = 0.02
FOLDER = "BENCH_RECORDS"


class Record:
    """Numbers of one process: ``values`` is appended to, and the file follows by itself."""

    def __init__(self, name: str, kind: str) -> None:
        """``kind``: an array's type code. The file lies in the folder that BENCH_RECORDS names."""
        self.values = array(kind)
        self._path = Path(os.environ[FOLDER]) / f"{name}-{kind}-{os.getpid()}"
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        written = 0
        with self._path.open("wb", buffering=0) as file:
            while True:
                end = len(self.values)
                if end > written:
                    file.write(self.values[written:end].tobytes())
                    written = end
                time.sleep(_EVERY)


def read(folder: Path, name: str, kind: str) -> list[array]:  # type: ignore[type-arg] # of int or float, by its kind
    """The numbers so far, one array for each process."""
    found = []
    for path in sorted(folder.glob(f"{name}-{kind}-*")):
        values = array(kind)
        data = path.read_bytes()
        values.frombytes(data[: len(data) // values.itemsize * values.itemsize])
        found.append(values)
    return found
