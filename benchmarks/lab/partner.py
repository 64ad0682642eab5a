"""A child process that answers questions, one line of JSON each way."""

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embedded.errors import PartFailed

_CHUNK = 65_536
_TAIL = 12


class Partner:
    """One child. It ends by itself when its standard input does, and so with this process, however that ends."""

    def __init__(self, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start it; what it complains of goes to ``log``."""
        self._argv = [str(word) for word in argv]
        self._log = log
        self._unread = b""
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | dict(env or {}),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._popen.poll() is None

    def ask(self, question: Mapping[str, Any], *, seconds: float = 60) -> Any:
        """Its answer; PartFailed when it ends instead or takes longer than ``seconds``."""
        self.tell(question)
        return self.hear(seconds=seconds)

    def tell(self, question: Mapping[str, Any]) -> None:
        """Ask, and take the answer later with ``hear``."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(question).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            raise self._failed("has ended") from None

    def hear(self, *, seconds: float = 60) -> Any:
        """The next line that it says."""
        assert self._popen.stdout is not None
        handle = self._popen.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failed(f"said nothing within {seconds:g} s")
            chunk = os.read(handle, _CHUNK)
            if not chunk:
                raise self._failed("has ended")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """End it: by the end of its input, by SIGKILL where that does not help. Idempotent."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        try:
            self._popen.wait(5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        if self._popen.stdout is not None:
            self._popen.stdout.close()

    def __enter__(self) -> Self:
        """Nothing more: it runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def _failed(self, what: str) -> PartFailed:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it complained of nothing"
        return PartFailed(f"{' '.join(self._argv[:3])} {what}: {last}\n{chr(10).join(lines[-_TAIL:])}")
