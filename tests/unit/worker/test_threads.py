"""Blocking handlers' threads: kept for the next call, never shared with a call that hangs."""

import asyncio
import gc
import threading
import weakref

import pytest

from tests.unit.worker.fakes import eventually
from tickkeeper.worker.threads import Threads


async def test_a_thread_is_kept_for_the_next_call():
    threads, used = Threads(), []
    for _ in range(5):
        await threads.call(lambda _row: used.append(threading.get_ident()), None)
        await eventually(lambda: threads._idle)
    assert len(set(used)) == 1


async def test_calls_at_once_have_a_thread_each():
    threads, both = Threads(), threading.Barrier(3, timeout=20)
    await asyncio.gather(*(threads.call(lambda _row: both.wait(), None) for _ in range(3)))


async def test_a_call_that_hangs_keeps_its_thread_to_itself():
    threads, go, used = Threads(), threading.Event(), []

    def hang(_row):
        used.append(threading.get_ident())
        go.wait(20)

    task = asyncio.create_task(threads.call(hang, None))
    await eventually(lambda: used)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads.left == 1
    await threads.call(lambda _row: used.append(threading.get_ident()), None)
    assert used[0] != used[1]
    go.set()
    await eventually(lambda: threads.left == 0 and len(threads._idle) == 2)


async def test_idle_threads_go(monkeypatch):
    monkeypatch.setattr("tickkeeper.worker.threads._KEPT", 0.01)
    threads, found = Threads(), []
    await threads.call(lambda _row: found.append(threading.current_thread()), None)
    await eventually(lambda: not found[0].is_alive())
    assert not threads._idle
    await threads.call(lambda _row: found.append(threading.current_thread()), None)
    assert len(found) == 2


async def test_what_is_raised_comes_back_also_what_no_future_takes():
    def stop(_row):
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await Threads().call(stop, None)


class _Payload:
    """Something that tells when it is gone."""


async def test_a_call_that_raises_keeps_nothing_of_its_argument():
    """Without a collection: a circle through the error's traceback would hold the payload of each failed row."""
    threads, gone = Threads(), []

    def fail(_payload):
        raise ValueError("no")

    async def once():
        payload = _Payload()
        weakref.finalize(payload, gone.append, True)
        try:
            await threads.call(fail, payload)
        except ValueError:
            return
        raise AssertionError("it must raise")

    gc.collect()
    gc.disable()
    try:
        await once()
        await eventually(lambda: gone, seconds=5)
    finally:
        gc.enable()
