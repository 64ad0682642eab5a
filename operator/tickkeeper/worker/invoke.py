"""Running one handler for one row: whatever it does, a verdict comes back and the tick goes on.

Each call has a task of its own, so that its cancellation is told apart from ours: a handler that raises
CancelledError would otherwise end the BullMQ worker without an event.
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from tickkeeper.outbox.store import Row
from tickkeeper.worker.handlers import Handler
from tickkeeper.worker.outcome import Verdict, failed, judge_raise, judge_return

# How long a cancelled handler may take to clean up before it is left alone.
_CLEANUP_SECONDS = 2.0


class Invoker:
    """Calls handlers; ``abandoned`` counts those that were told to stop and still run."""

    def __init__(self, *, default_timeout: float, cleanup_seconds: float = _CLEANUP_SECONDS) -> None:
        self._default_timeout = default_timeout
        self._cleanup = cleanup_seconds
        self._abandoned: set[asyncio.Task[Verdict]] = set()
        self._threads = 0
        #: held while a row runs that may kill the process, or that cannot afford another's doing so
        self.alone = asyncio.Lock()

    @property
    def abandoned(self) -> int:
        """Handlers told to stop that still run, threads included."""
        return len(self._abandoned) + self._threads

    async def __call__(self, handler: Handler, row: Row) -> Verdict:
        """The verdict on ``row``. Cancelling this cancels the handler, and raises."""
        timeout = handler.timeout or self._default_timeout
        task = asyncio.create_task(self._judged(handler, row), name=f"handler {handler.name}")
        try:
            await asyncio.wait({task}, timeout=timeout)
            if task.done():
                return _result(task)
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        await self._stop(task)
        return failed(f"timed out: the handler {handler.name} took longer than {timeout:g} s")

    async def _stop(self, task: asyncio.Task[Verdict]) -> None:
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        await asyncio.wait({task}, timeout=self._cleanup)

    async def _judged(self, handler: Handler, row: Row) -> Verdict:
        try:
            value = await (handler.call(row) if handler.is_async else self._in_thread(handler.call, row))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too: a handler does not end the worker
            return judge_raise(error)
        return judge_return(_finished(value))

    async def _in_thread(self, call: Callable[[Row], Any], row: Row) -> Any:
        """Run a blocking call in a thread of its own.

        Not the loop's pool: a few hung calls would fill it, and the interpreter waits for its threads at exit.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: Any, error: BaseException | None) -> None:
            if future.cancelled():
                self._threads -= 1
            elif error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def run() -> None:
            value, error = None, None
            try:
                value = context.run(call, row)
            except BaseException as caught:  # noqa: BLE001 - handed over to the loop
                error = caught
            # A future takes no StopIteration, and SystemExit would end the loop.
            if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
                error = RuntimeError(f"{type(error).__name__}: {error}")
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                return  # the loop is gone, and with it whoever waited

        threading.Thread(target=run, daemon=True, name=f"handler row {row.id}").start()
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._threads += 1
            raise


def _result(task: asyncio.Task[Verdict]) -> Verdict:
    if task.cancelled():
        return failed("the handler was cancelled from within (CancelledError)")
    return task.result()


def _finished(value: Any) -> Any:
    """A coroutine that a plain function returned was never run: close it, and let it be judged as nonsense."""
    if inspect.iscoroutine(value):
        value.close()
    elif isinstance(value, Awaitable) and isinstance(value, asyncio.Future):
        value.cancel()
    return value
