"""Parts for the tests of applications: nothing here needs a server."""

from tickkeeper.testing.outbox import InMemoryOutbox
from tickkeeper.testing.ticking import tick

__all__ = ["InMemoryOutbox", "tick"]
