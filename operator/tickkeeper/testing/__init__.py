"""Parts for the tests of applications: nothing here needs a server."""

from tickkeeper.testing.outbox import InMemoryOutbox

__all__ = ["InMemoryOutbox"]
