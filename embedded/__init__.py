"""Real servers for tests and the demo: Redis, PostgreSQL, a Kubernetes API. Development only, never shipped.

Each part is a context manager with ``start``, ``stop``, ``kill``, ``restart``, ``freeze``, ``thaw`` and ``version``,
listens on 127.0.0.1 only, and is gone, with its data, when the process that started it is (see ``guard``).
"""

from embedded.errors import MissingPart, PartFailed

__all__ = ["MissingPart", "PartFailed"]
