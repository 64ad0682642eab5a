"""The TickSchedules as the API server last told of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tickkeeper.api.errors import InvalidSpec
from tickkeeper.api.resource import ResourceMeta, TickSchedule
from tickkeeper.api.status import TickScheduleStatus
from tickkeeper.schedules.desired import ResourceKey


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource, read: ``resource`` is None where its spec is invalid, and ``fault`` says why."""

    meta: ResourceMeta
    status: TickScheduleStatus
    resource: TickSchedule | None = None
    fault: InvalidSpec | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Entry":
        """Read a body; a spec that breaks a rule is kept as its fault."""
        meta = ResourceMeta.parse(body)
        status = TickScheduleStatus.parse(body.get("status"))
        try:
            return cls(meta, status, resource=TickSchedule.parse(body))
        except InvalidSpec as fault:
            return cls(meta, status, fault=fault)

    @property
    def key(self) -> ResourceKey:
        """Namespace and name."""
        return ResourceKey(self.meta.namespace, self.meta.name)

    def differs_for_us(self, other: "Entry") -> bool:
        """Whether anything changed that decides what to do; our own status writes do not."""
        return self.decisive() != other.decisive()

    def decisive(self) -> tuple[object, ...]:
        """Everything that decides what to do."""
        meta = self.meta
        return (
            meta.uid,
            meta.generation,
            meta.deletion_timestamp,
            meta.finalizers,
            meta.paused,
            meta.adopts,
            str(self.fault),
        )


@dataclass(slots=True)
class Table:
    """Entries by key, newest version only."""

    _entries: dict[ResourceKey, Entry] = field(default_factory=dict)

    def put(self, body: Mapping[str, Any]) -> Entry | None:
        """Take in a body. Returns its entry when something changed that decides what to do, else None."""
        entry = Entry.read(body)
        before = self._entries.get(entry.key)
        if before is not None and before.meta.uid == entry.meta.uid and _older(entry.meta, before.meta):
            return None
        self._entries[entry.key] = entry
        return entry if before is None or before.differs_for_us(entry) else None

    def drop(self, key: ResourceKey, uid: str) -> Entry | None:
        """Forget a resource that was deleted. Returns its last entry, None where another took its name since."""
        entry = self._entries.get(key)
        if entry is None or entry.meta.uid != uid:
            return None
        return self._entries.pop(key)

    def get(self, key: ResourceKey) -> Entry | None:
        """The newest entry of a resource."""
        return self._entries.get(key)

    def __len__(self) -> int:
        """How many resources there are."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """All entries."""
        return iter(tuple(self._entries.values()))


def _older(meta: ResourceMeta, than: ResourceMeta) -> bool:
    # resourceVersions of one object are comparable as integers (KEP-5504); where one is not, the later word counts.
    if meta.resource_version.isdigit() and than.resource_version.isdigit():
        return int(meta.resource_version) < int(than.resource_version)
    return False
