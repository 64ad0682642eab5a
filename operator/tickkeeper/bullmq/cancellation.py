"""Cancellation that is not lost."""

import asyncio


def raise_if_cancelled() -> None:
    """Raise CancelledError where somebody has asked this task to end.

    Python 3.11's ``asyncio.wait_for``, which redis-py writes with, may swallow a cancellation (mended in 3.12), and so
    does an ``except*`` of the errors that come with one. A loop that outlives them asks at every turn.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
