"""One tick in a test: real handlers, real retries and dead letters, no server."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tickkeeper.outbox.store import OutboxStore
from tickkeeper.testing.outbox import InMemoryOutbox
from tickkeeper.worker.handlers import DEFAULT_TIMEOUT, HandlerError, Registry, handlers_of
from tickkeeper.worker.invoke import Invoker
from tickkeeper.worker.tick import TickResult, drain


async def tick(outbox: OutboxStore, tenant_id: str, *handlers: ModuleType | Callable[..., Any]) -> TickResult:
    """Drain one tenant as a worker's tick does, and say what became of the rows.

    ``handlers`` are modules with marked functions, or such functions. Raises HandlerError where there is none, and for
    one with ``transaction=True`` where the outbox has no connection to give it.
    """
    registry = Registry(each for given in handlers for each in handlers_of(given, repr(given)))
    if (needing := registry.transactional) and isinstance(outbox, InMemoryOutbox) and not outbox.has_connection:
        raise HandlerError(
            f"{needing[0]} has transaction=True: give it something in place of a connection, "
            "InMemoryOutbox(connection=…)"
        )
    return await drain(outbox, tenant_id, registry, invoker=Invoker(default_timeout=DEFAULT_TIMEOUT))
