"""Which schedulers somebody looks at, by Redis' own word (MONITOR)."""

import re
import socket
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

_CHUNK = 1 << 20
#: What stands between quotes, within an argument that is JSON too; ids hold neither quotes nor backslashes.
_WORD = re.compile(rb'[^"\\]+')


class Looks:
    """While open, collects which of ``ids`` appear in the arguments of a script that is run."""

    def __init__(self, port: int, ids: Iterable[str]) -> None:
        """Describe it; ``with`` begins to listen."""
        self._left = {scheduler_id.encode() for scheduler_id in ids}
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        #: set once every id has been looked at
        self.complete = threading.Event()

    def __enter__(self) -> Self:
        """Listen, from when Redis has agreed to."""
        self._socket.sendall(b"MONITOR\r\n")
        answer = self._socket.recv(5)
        assert answer == b"+OK\r\n", answer
        self._socket.settimeout(None)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no longer."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        rest = b""
        while chunk := self._socket.recv(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if b'"EVALSHA' in line[:80].upper():
                    self._left.difference_update(_WORD.findall(line))
            if not self._left:
                self.complete.set()
