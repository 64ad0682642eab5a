"""Blocking handlers in threads: a thread of its own for each call that runs, kept for the next when it ends in time.

Not the loop's pool: a few hung calls would fill it, and the interpreter waits for its threads at exit.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

# An idle thread goes after so many seconds.
_KEPT = 10.0

_Work = Callable[[], None]


class Threads:
    """Daemon threads, as many as there are calls; ``left`` counts calls that were given up and still run."""

    def __init__(self) -> None:
        self.left = 0
        self._idle: list[queue.SimpleQueue[_Work]] = []

    async def call(self, call: Callable[[Any], Any], argument: Any) -> Any:
        """What ``call(argument)`` returns. Cancelling this does not stop the call: it is left alone."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._hand_over(partial(self._work, future, contextvars.copy_context(), call, argument))
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self.left += 1
            raise
        finally:
            # The future holds an error whose traceback holds this frame: that circle would keep the row.
            del future

    def _work(
        self, future: "asyncio.Future[Any]", context: contextvars.Context, call: Callable[[Any], Any], argument: Any
    ) -> None:
        value, error = None, None
        try:
            value = context.run(call, argument)
        except BaseException as caught:  # noqa: BLE001 - handed over to the loop
            error = caught
        # A future takes no StopIteration, and SystemExit would end the loop.
        if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
            error = RuntimeError(f"{type(error).__name__}: {error}")
        try:
            future.get_loop().call_soon_threadsafe(self._settle, future, value, error)
        except RuntimeError:
            return  # the loop is gone, and with it whoever waited
        finally:
            del value, error, future  # as above: its traceback holds this frame

    def _settle(self, future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
        if future.cancelled():
            self.left -= 1
        elif error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _hand_over(self, work: _Work) -> None:
        while self._idle:
            try:
                inbox = self._idle.pop()
            except IndexError:
                break
            inbox.put(work)
            return
        inbox = queue.SimpleQueue()
        inbox.put(work)
        threading.Thread(target=self._serve, args=(inbox,), daemon=True, name="handler").start()

    def _serve(self, inbox: "queue.SimpleQueue[_Work]") -> None:
        while True:
            try:
                work = inbox.get(timeout=_KEPT)
            except queue.Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    work = inbox.get()  # it was taken from the idle ones in this very moment
                else:
                    return
            work()
            del work  # else an idle thread holds the last row's payload
            self._idle.append(inbox)
