"""Parts that stand for as long as a ``with`` block lasts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, Self

from embedded.errors import PartFailed


class Part(Protocol):
    """A server."""

    @property
    def start(self) -> Callable[[], Any]:
        """Start it, and return once it answers."""
        ...

    def close(self) -> None:
        """End it; also where it has not come up."""
        ...


class Standing:
    """``with`` puts it up by ``_put_up``; what that has put on ``_stack`` ends with it, also where the rest fails."""

    def __init__(self) -> None:
        """Nothing is started."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Put it up."""
        try:
            self._put_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End and remove everything."""
        if isinstance(error, PartFailed | TimeoutError | AssertionError):
            self._explain()
        self._stack.close()

    def _put_up(self) -> None:
        raise NotImplementedError

    def _explain(self) -> None:
        """Say what may have led to a failure, while it can still be seen."""

    def _start(self, *parts: Part) -> None:
        """Start servers, all at once."""
        with ThreadPoolExecutor(max_workers=len(parts)) as threads:
            starting = [threads.submit(part.start) for part in parts]
            for part in parts:
                self._stack.callback(part.close)
        for each in starting:
            each.result()
