"""Databases as former releases have left them."""

from importlib import import_module

import pytest

from tickkeeper.outbox import Migrated, migrate_sync
from tickkeeper.outbox.version import migrations


def migrate_to(dsn: str, version: int) -> Migrated:
    """Bring an empty database to an older version of the schema."""
    every = migrations()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("tickkeeper.outbox.migrate"), "migrations", lambda: every[:version])
        return migrate_sync(dsn)
