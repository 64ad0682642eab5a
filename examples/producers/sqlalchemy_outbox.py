# ruff: noqa: INP001 - a file to copy, in no package
"""A producer in SQLAlchemy (``postgresql+psycopg``): the row and what it tells about in one session's transaction.

with Session(engine) as session, session.begin():
    session.add(user)
    session.flush()
    enqueue(session, "acme", "mail.welcome", {"user": user.id}, dedup_key=f"welcome-{user.id}")
"""

from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection, Connection
from sqlalchemy.orm import Session

from tickkeeper import outbox

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession


def enqueue(session: Session, tenant_id: str, kind: str, payload: Any, **fields: Any) -> outbox.Enqueued:
    """Put one row into the outbox, within the session's transaction. ``fields``: those of ``tickkeeper.outbox.NewRow``.

    InvalidRow (a ValueError): a field breaks a rule; nothing was sent, and the transaction goes on. After DuplicateRow,
    and errors of the database, the session must be rolled back, or a savepoint (``session.begin_nested()``) around it.
    """
    driver = session.connection().connection.driver_connection
    assert isinstance(driver, Connection), "the engine must be of postgresql+psycopg"
    return outbox.enqueue_sync(driver, tenant_id, kind, payload, **fields)


async def enqueue_async(
    session: "AsyncSession", tenant_id: str, kind: str, payload: Any, **fields: Any
) -> outbox.Enqueued:
    """The same for an AsyncSession."""
    connection = await (await session.connection()).get_raw_connection()
    driver = connection.driver_connection
    assert isinstance(driver, AsyncConnection), "the engine must be of postgresql+psycopg"
    return await outbox.enqueue(driver, tenant_id, kind, payload, **fields)
