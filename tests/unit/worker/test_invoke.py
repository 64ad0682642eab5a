"""Whatever a handler does, a verdict comes back."""

import asyncio
import io
import json
import logging
import threading
from contextlib import contextmanager

import pytest
import structlog

from tests.unit.worker.fakes import eventually, row
from tickkeeper.telemetry import logs
from tickkeeper.worker.handlers import Kinds, as_handler
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.outcome import Dead, Fate, Retry

ROW = row()

#: As SQLAlchemy has it, with what was bound, and a password.
TOLD = """(psycopg.errors.UniqueViolation) postgresql://app:hunter2@db/app
[SQL: INSERT INTO cards VALUES (%(number)s)]
[parameters: {'number': '4111] [4111', 'more': [1, 2]}]
(Background on this error at: https://sqlalche.me/e/20/gkpj)"""


@contextmanager
def logging_as(level, stream):
    """This process's logging into ``stream``, and as it was afterwards."""
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    logs.configure(level, "json", stream=stream)
    try:
        yield
    finally:
        structlog.reset_defaults()
        logging.captureWarnings(capture=False)
        root.handlers[:] = handlers
        root.setLevel(before)


@pytest.fixture
def invoker():
    return Invoker(default_timeout=30, cleanup_seconds=0.05)


async def _verdict(invoker, call, seconds=None):
    return await invoker(as_handler(call, Kinds.of("a"), timeout=seconds, name="app.h"), ROW)


async def test_async_and_sync_handlers_get_the_row(invoker):
    got = []

    async def on_loop(row):
        got.append((row, threading.current_thread() is threading.main_thread()))

    def in_thread(row):
        got.append((row, threading.current_thread() is threading.main_thread()))

    assert (await _verdict(invoker, on_loop)).fate is Fate.DONE
    assert (await _verdict(invoker, in_thread)).fate is Fate.DONE
    assert got == [(ROW, True), (ROW, False)]


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()]
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_is_raised_is_a_failure(invoker, error, is_async):
    async def on_loop(row):
        raise error

    def in_thread(row):
        raise error

    verdict = await _verdict(invoker, on_loop if is_async else in_thread)
    assert verdict.fate is Fate.RETRIED
    assert type(error).__name__ in verdict.error


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_traceback_is_told_at_debug_and_holds_no_credential(invoker, is_async):
    async def on_loop(row):
        raise RuntimeError(TOLD)

    def in_thread(row):
        raise RuntimeError(TOLD)

    async def asks(row):
        raise Retry(1)

    for level, lines in (("info", 0), ("debug", 1)):
        stream = io.StringIO()
        with logging_as(level, stream):
            verdict = await _verdict(invoker, on_loop if is_async else in_thread)
            await _verdict(invoker, asks)
        told = [json.loads(line) for line in stream.getvalue().splitlines() if "handler raised" in line]
        assert len(told) == lines
        assert "hunter2" not in stream.getvalue() + verdict.error
        assert "4111" not in stream.getvalue() + verdict.error
    assert told[0]["handler"] == "app.h"
    assert "Traceback" in told[0]["exception"]
    assert ("in on_loop" if is_async else "in in_thread") in told[0]["exception"]
    assert "(Background on this error" in told[0]["exception"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a16_cancelled_error_from_a_handler_is_a_failure(invoker, is_async):
    async def on_loop(row):
        raise asyncio.CancelledError

    def in_thread(row):
        raise asyncio.CancelledError

    verdict = await _verdict(invoker, on_loop if is_async else in_thread)
    assert verdict.fate is Fate.RETRIED
    assert "CancelledError" in verdict.error
    assert invoker.abandoned == 0
    assert asyncio.current_task().cancelling() == 0


async def test_a16_a_handler_that_cancels_itself_is_a_failure(invoker):
    async def handler(row):
        asyncio.current_task().cancel()
        await asyncio.sleep(30)

    assert (await _verdict(invoker, handler)).fate is Fate.RETRIED


async def test_a_hanging_handler_is_timed_out_and_cancelled(invoker):
    cancelled = asyncio.Event()

    async def handler(row):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    verdict = await _verdict(invoker, handler, seconds=0.01)
    assert verdict.fate is Fate.RETRIED
    assert "timed out: the handler app.h took longer than 0.01 s" in verdict.error
    assert cancelled.is_set()
    assert invoker.abandoned == 0


async def test_a_handler_that_swallows_its_cancellation_is_left_alone_and_counted(invoker):
    go = asyncio.Event()

    async def handler(row):
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    assert (await _verdict(invoker, handler, seconds=0.01)).fate is Fate.RETRIED
    assert invoker.abandoned == 1
    go.set()
    await eventually(lambda: not invoker.abandoned)


async def test_a_late_return_after_a_time_out_is_no_success(invoker):
    async def handler(row):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    assert (await _verdict(invoker, handler, seconds=0.01)).fate is Fate.RETRIED


async def test_a_blocked_thread_is_left_alone_and_counted(invoker):
    go, ran = threading.Event(), threading.Event()

    def handler(row):
        go.wait(30)
        ran.set()

    assert (await _verdict(invoker, handler, seconds=0.01)).fate is Fate.RETRIED
    assert invoker.abandoned == 1
    go.set()
    await eventually(lambda: not invoker.abandoned)
    assert ran.is_set()


async def test_hung_threads_do_not_keep_others_from_running(invoker):
    go = threading.Event()
    for _ in range(70):  # more than any default pool has
        await _verdict(invoker, lambda row: go.wait(30) and None, seconds=0.001)
    assert (await _verdict(invoker, lambda row: None)).fate is Fate.DONE
    go.set()


async def test_a_plain_function_that_returns_a_coroutine_is_nonsense(invoker):
    async def inner():
        pass

    verdict = await _verdict(invoker, lambda row: inner())
    assert verdict.fate is Fate.RETRIED
    assert "returned coroutine" in verdict.error


async def test_outcomes_pass_through(invoker):
    async def retry(row):
        raise Retry(5)

    assert (await _verdict(invoker, retry)).after.total_seconds() == 5
    assert (await _verdict(invoker, lambda row: Dead("gone"))).error == "gone"


async def test_cancelling_the_call_cancels_the_handler(invoker):
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(row):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(_verdict(invoker, handler))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
