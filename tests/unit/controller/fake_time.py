"""An event loop whose clock jumps to the next timer, so that pauses of minutes are tested in milliseconds."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    loop: "FakeTimeLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everything waits for something that never comes"
            self.loop.now += timeout
        return ready


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """``time()`` is ``now`` and only moves when nothing else is left to do."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine in fake time."""
    with asyncio.Runner(loop_factory=FakeTimeLoop) as runner:
        return runner.run(main())
