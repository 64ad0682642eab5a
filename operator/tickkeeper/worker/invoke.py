"""Running handlers: whatever one does, a verdict comes back and the tick goes on.

Handlers run one after another in a task that is theirs (a ``_Seat``), so that their cancellation is told apart from
ours: one that raises CancelledError would otherwise end the BullMQ worker without an event. A task for each row would
be plainer, and cost more than all the rest of a quick row (docs/decisions/0010); so a seat is given up for a new one
only after a cancellation. Each call has a context (``contextvars``) of its own.
"""

import asyncio
import contextvars
import inspect
import logging
import math
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import suppress
from time import monotonic  # which is the event loop's clock
from typing import Any

from tickkeeper.outbox.store import Row
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.worker.gates import Gates
from tickkeeper.worker.handlers import Handler
from tickkeeper.worker.outcome import DONE, Outcome, Verdict, failed, judge_raise, judge_return
from tickkeeper.worker.pressure import Pressure
from tickkeeper.worker.solitude import Solitude
from tickkeeper.worker.threads import Threads

_log = get_logger(__name__)
# Asked first: a handler may raise for each of its rows.
_plain_log = logging.getLogger(__name__)

# How long a cancelled handler may take to clean up before it is left alone.
_CLEANUP_SECONDS = 2.0
# Quick handlers never suspend: the event loop gets its turn after so many seconds.
_SLICE = 0.004

#: A handler, and what it is called with: a row, or a list of rows.
Job = tuple[Handler, Any]
#: What became of a job, and the seconds that its handler took.
Put = Callable[[Job, Verdict, float], None]


class Invoker:
    """Calls handlers; ``abandoned`` counts those that were told to stop and still run."""

    def __init__(
        self,
        *,
        default_timeout: float,
        cleanup_seconds: float = _CLEANUP_SECONDS,
        pressure: Pressure | None = None,
    ) -> None:
        self._default_timeout = default_timeout
        self.cleanup = cleanup_seconds
        self.threads = Threads()
        self.gates = Gates()
        self.pressure = pressure or Pressure()
        self._abandoned: set[asyncio.Task[Any]] = set()
        #: held while a row runs that may kill the process, or that cannot afford another's doing so
        self.alone = Solitude()

    @property
    def abandoned(self) -> int:
        """Handlers told to stop that still run, threads included."""
        return len(self._abandoned) + self.threads.left

    def timeout_of(self, handler: Handler) -> float:
        """Seconds that it may take."""
        return handler.timeout or self._default_timeout

    async def __call__(self, handler: Handler, row: Row) -> Verdict:
        """The verdict on one row. Cancelling this cancels the handler, and raises."""
        got: list[Verdict] = []
        await self.work([(handler, row)], lambda _job, verdict, _seconds: got.append(verdict))
        return got[0]

    async def work(self, jobs: Iterable[Job], put: Put) -> None:
        """Run jobs one after another, each with its verdict ``put``, until there are no more.

        Cancelling this cancels the handler that runs, whose verdict is not put, and raises.
        """
        waiting = iter(jobs)
        while True:
            seat = _Seat(self, waiting, put)
            try:
                if await seat.over:
                    return
            except asyncio.CancelledError:
                seat.stop()
                await asyncio.wait({seat.task}, timeout=self.cleanup)
                raise

    def told_to_stop(self, task: "asyncio.Task[Any]") -> None:
        """Count a handler's task as abandoned until it ends."""
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)


class _Seat:
    """A task in which handlers run one after another. ``over``: True when no job is left, False for a new seat."""

    def __init__(self, invoker: Invoker, jobs: Iterator[Job], put: Put) -> None:
        self._invoker = invoker
        self._jobs = jobs
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._job: Job | None = None
        self._began = self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: when the timer looks
        self._armed = math.inf
        self._late = False
        self._stopped = False
        self.over: asyncio.Future[bool] = self._loop.create_future()
        self.task = asyncio.create_task(self._run(), name="handlers")
        self.task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Cancel the handler that runs; its verdict is not wanted."""
        self._stopped = True
        self._cancel()

    async def _run(self) -> bool:  # noqa: C901 - in one piece, for the reason below
        """True when no job is left."""
        # What runs here runs for each row: names are local, and a call of ours that can be spared is.
        clock, call, context, put = monotonic, self._invoker.threads.call, contextvars.copy_context, self._put
        told, timeout_of = self.task.cancelling, self._invoker.timeout_of
        known, limit = None, 0.0
        now = clock()
        slice_ends = now + _SLICE
        for job in self._jobs:
            handler, argument = job
            self._job, self._began = job, now
            if handler is not known:
                known, limit = handler, timeout_of(handler)
            self._deadline = deadline = now + limit
            # One timer for many calls: it looks at what runs when it fires.
            if deadline < self._armed:
                self._arm(deadline)
            try:
                if handler.batch:
                    argument = argument.copy()  # what it does to its list is not done to ours
                if handler.is_async:
                    # A context of its own: what one handler sets there, the next one of the task does not see.
                    own, call_of_it = context(), handler.call(argument)
                    try:
                        waited = own.run(call_of_it.send, None)
                    except StopIteration as stop:
                        value = stop.value
                    else:
                        value = await _within(own, call_of_it, waited)
                else:
                    value = await call(handler.call, argument)
                verdict = DONE if value is None else judge_return(_finished(value))
            except asyncio.CancelledError:
                if self._told():
                    raise
                verdict = failed("the handler was cancelled from within (CancelledError)")
            except Exception as error:  # noqa: BLE001 - that is what a verdict is for
                verdict = judge_raise(error)
                _trace(handler, error)
            except BaseException as error:  # noqa: BLE001 - SystemExit too: a handler does not end the worker
                _trace(handler, error)
                self._finish(judge_raise(error))
                return False
            now = clock()
            if told() or self._late or self._stopped or self._job is None:
                self._finish(verdict)
                return False
            self._job = None
            put(job, verdict, now - self._began)
            if now >= slice_ends:
                await asyncio.sleep(0)
                now = clock()
                slice_ends = now + _SLICE
        return True

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed = self._loop.call_at(when, self._look), when

    def _look(self) -> None:
        self._timer, self._armed = None, math.inf
        if self._job is None or self.task.done():
            return
        if monotonic() < self._deadline:
            self._arm(self._deadline)
            return
        self._late = True
        self._cancel()
        self._loop.call_later(self._invoker.cleanup, self._give_up)

    def _cancel(self) -> None:
        if not self.task.done():
            self._invoker.told_to_stop(self.task)
            self.task.cancel()

    def _told(self) -> bool:
        return self._late or self._stopped or self.task.cancelling() > 0

    def _finish(self, verdict: Verdict) -> None:
        job, self._job = self._job, None
        if job is None or self._stopped:
            return
        if self._late:
            handler = job[0]
            limit = self._invoker.timeout_of(handler)
            verdict = failed(f"timed out: the handler {handler.name} took longer than {limit:g} s", late=True)
        self._put(job, verdict, monotonic() - self._began)

    def _give_up(self) -> None:
        """The handler does not end: its verdict is a time-out, and somebody else takes the next job."""
        if not self.task.done():
            self._finish(DONE)
            self._end(False)

    def _ended(self, task: "asyncio.Task[bool]") -> None:
        if self._timer is not None:
            self._timer.cancel()
        if task.cancelled():
            self._finish(failed("the handler was cancelled from within (CancelledError)"))
            self._end(False)
        elif error := task.exception():
            if not self.over.done():
                self.over.set_exception(error)
        else:
            self._end(task.result())

    def _end(self, exhausted: bool) -> None:
        if not self.over.done():
            self.over.set_result(exhausted)


@types.coroutine
def _within(context: contextvars.Context, call: Coroutine[Any, Any, Any], waited: Any) -> Generator[Any, Any, Any]:
    """Await the rest of ``call`` in its context; ``waited`` is what it waits for first."""
    run, send, throw = context.run, call.send, call.throw
    try:
        while True:
            try:
                value = yield waited
            except GeneratorExit:
                call.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the handler's, a cancellation for example
                waited = run(throw, error)
            else:
                waited = run(send, value)
    except StopIteration as stop:
        return stop.value


def _trace(handler: Handler, error: BaseException) -> None:
    """The traceback, for whoever asks for it; the row keeps one line."""
    if not isinstance(error, Outcome) and _plain_log.isEnabledFor(logging.DEBUG):
        with suppress(Exception):  # an exception may not even let itself be shown
            _log.debug("handler raised", handler=handler.name, exc_info=error)


def _finished(value: Any) -> Any:
    """A coroutine that a plain function returned was never run: close it, and let it be judged as nonsense."""
    if inspect.iscoroutine(value):
        value.close()
    elif isinstance(value, Awaitable) and isinstance(value, asyncio.Future):
        value.cancel()
    return value
