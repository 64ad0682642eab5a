"""Handlers for workers in processes of their own; effects are lines of the file that EFFECTS names."""

import asyncio
import os
import signal
import time
from pathlib import Path

from tickkeeper.worker import Row, handler


def _effect(row: Row, what: str) -> None:
    descriptor = os.open(Path(os.environ["EFFECTS"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{what} {row.payload['n']}\n".encode())
    os.close(descriptor)


@handler("effect")
async def effect(row: Row) -> None:
    _effect(row, "done")


@handler("slow")
async def slow(row: Row) -> None:
    _effect(row, "start")
    await asyncio.sleep(row.payload["seconds"])
    _effect(row, "done")


@handler("block")
async def block(row: Row) -> None:
    """Holds up the event loop, as nobody should."""
    _effect(row, "start")
    time.sleep(row.payload["seconds"])  # noqa: ASYNC251
    _effect(row, "done")


@handler("thread")
def in_thread(row: Row) -> None:
    _effect(row, "start")
    time.sleep(row.payload["seconds"])
    _effect(row, "done")


@handler("stop the loop")
async def stop_the_loop(row: Row) -> None:
    _effect(row, "stop")
    asyncio.get_running_loop().stop()


@handler("cancel all")
async def cancel_all(row: Row) -> None:
    _effect(row, "cancel")
    for task in asyncio.all_tasks():
        task.cancel()


@handler("kill")
async def kill(row: Row) -> None:
    """Takes its whole worker along, as one that is out of memory does."""
    _effect(row, "kill")
    os.kill(os.getpid(), signal.SIGKILL)
