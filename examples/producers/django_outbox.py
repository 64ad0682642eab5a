# ruff: noqa: INP001 - a file to copy, in no package
"""A producer in Django (with psycopg 3): the row and what it tells about in one ``transaction.atomic()``.

from django.db import transaction

with transaction.atomic():
    user = User.objects.create(email="a@example.org")
    enqueue("acme", "mail.welcome", {"user": user.pk}, dedup_key=f"welcome-{user.pk}")
"""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from tickkeeper.outbox import Enqueued, enqueue_sync


def enqueue(tenant_id: str, kind: str, payload: Any, *, using: str = DEFAULT_DB_ALIAS, **fields: Any) -> Enqueued:
    """Put one row into the outbox, within Django's transaction. ``fields``: those of ``tickkeeper.outbox.NewRow``.

    InvalidRow (a ValueError): a field breaks a rule; nothing was sent, and the transaction goes on. After DuplicateRow,
    and errors of the database, it must be rolled back: leave the ``atomic`` block, or use an inner one.
    """
    django = connections[using]
    if not django.in_atomic_block:
        raise RuntimeError("enqueue outside of transaction.atomic(): the row would not belong to any other change")
    django.ensure_connection()
    return enqueue_sync(django.connection, tenant_id, kind, payload, **fields)
