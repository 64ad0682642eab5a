"""BullMQ's key names (bullmq 3.4.4, queue_keys.py)."""

from typing import NamedTuple


class QueueKey(NamedTuple):
    """A queue within one Redis."""

    prefix: str
    queue: str

    @property
    def base(self) -> str:
        """What every key of the queue begins with."""
        return f"{self.prefix}:{self.queue}:"

    def key(self, name: str) -> str:
        """The key of one of the queue's parts: ``repeat``, ``delayed``, ``meta`` …"""
        return self.base + name

    @property
    def has_hash_tag(self) -> bool:
        """Whether all its keys lie in one slot of a Redis Cluster (the text between the first ``{`` and ``}``)."""
        _, opened, rest = self.base.partition("{")
        return bool(opened) and rest.find("}") > 0

    def __str__(self) -> str:
        return f"{self.prefix}:{self.queue}"
