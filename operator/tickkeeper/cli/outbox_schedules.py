"""Whose schedules there are, for the commands that name tenants without one: asked of Redis, where it is known."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from tickkeeper.outbox.doctor import Schedules

_URL = "TICKKEEPER_REDIS_URL"

Queue = Annotated[
    list[str] | None,
    typer.Option(help="A queue with schedules; may be given again. TICKKEEPER_QUEUES; default: all of the prefix."),
]
Prefix = Annotated[str | None, typer.Option(help="BullMQ's key prefix. TICKKEEPER_PREFIX; default: bull.")]


def without_schedule(tenants: Sequence[str], *, queues: Sequence[str] | None, prefix: str | None) -> Schedules:
    """Of ``tenants`` those that no schedule ticks for. Not told where no Redis is named, or it does not answer."""
    if not os.environ.get(_URL, "").strip():
        return Schedules(None, f"{_URL} is not set, so nobody was asked for schedules")
    from tickkeeper.cli.outbox_redis import ask

    return ask(tenants, queues=queues, prefix=prefix)
