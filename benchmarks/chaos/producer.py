"""Enqueues all the while, as an application does: rows and their record in one transaction."""

import random
import threading
import time
from contextlib import suppress

import psycopg
from psycopg.types.json import Jsonb

TENANTS = ("acme", "globex", "initech")
KINDS = ("effect.single", "effect.batch", "hook.post")

_KEYS = 12
_AT_ONCE = 6
_EVERY = 0.05
_DIES = 0.005
_FAILS = 0.03
_MOST_MS = 15
_PAUSE = 0.1

_STATEMENT = """
WITH new AS (
    SELECT e.id FROM tickkeeper.enqueue(tenant_id => %(tenant)s, kind => %(kind)s, payload => %(payload)s,
                                        ordering_key => %(key)s, max_attempts => 1000) e
)
INSERT INTO enqueued (row_id, tenant_id, kind, key, dies) SELECT id, %(tenant)s, %(kind)s, %(key)s, %(dies)s FROM new
"""


class Producer:
    """A thread with a connection of its own; it goes on after each outage."""

    def __init__(self, dsn: str, dice: random.Random) -> None:
        """``start`` it, ``stop`` it."""
        self._dsn = dsn
        self._dice = dice
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Enqueue nothing more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            # An outage: what was not committed was never enqueued, and its record says so too.
            with suppress(psycopg.Error), psycopg.connect(self._dsn, connect_timeout=5) as connection:
                self._enqueue(connection)
            self._over.wait(_PAUSE)

    def _enqueue(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        while not self._over.is_set():
            started = time.monotonic()
            tenant = self._dice.choice(TENANTS)
            # One key a transaction: two that took several in different orders would wait for one another.
            key = f"k{self._dice.randrange(_KEYS)}" if self._dice.random() < 0.6 else None
            for _ in range(self._dice.randint(1, _AT_ONCE)):
                connection.execute(_STATEMENT, self._row(tenant, key))
            connection.commit()
            self._over.wait(max(0.0, _EVERY - (time.monotonic() - started)))

    def _row(self, tenant: str, key: str | None) -> dict[str, object]:
        payload = {
            "ms": self._dice.randrange(_MOST_MS),
            "dies": self._dice.random() < _DIES,
            "fails": self._dice.randint(1, 3) if self._dice.random() < _FAILS else 0,
        }
        row = {"tenant": tenant, "kind": self._dice.choice(KINDS), "key": key}
        return row | {"payload": Jsonb(payload), "dies": payload["dies"]}
