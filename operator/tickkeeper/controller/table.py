"""The TickSchedules as the API server last told of them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tickkeeper.api.errors import InvalidSpec
from tickkeeper.api.resource import GROUP, ResourceMeta
from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.api.status import TickScheduleStatus
from tickkeeper.schedules.desired import ResourceKey


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource, read: ``spec`` is None where it is invalid, and ``fault`` says why.

    Small, since there are ten thousand: the status stays as text until somebody wants it.
    """

    meta: ResourceMeta
    spec: TickScheduleSpec | None
    fault: InvalidSpec | None
    #: None once it was taken up: what the status says is then the memo's
    _status: str | None
    key: ResourceKey

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Entry":
        """Read a body; a spec that breaks a rule is kept as its fault.

        Raises ValueError for a body that no API server hands out.
        """
        meta = ResourceMeta.parse({"metadata": _ours(body.get("metadata") or {})})
        status = json.dumps(body.get("status"))
        key = ResourceKey(meta.namespace, meta.name)
        try:
            return cls(meta, TickScheduleSpec.parse(body.get("spec")), None, status, key)
        except InvalidSpec as fault:
            return cls(meta, None, fault, status, key)

    @property
    def status(self) -> TickScheduleStatus:
        """The status, as the API server last told it; an empty one where it was taken up."""
        return TickScheduleStatus.parse(None if self._status is None else json.loads(self._status))

    def without_status(self) -> "Entry":
        """The same, but for the status."""
        return replace(self, _status=None)

    @property
    def secret(self) -> tuple[str, str] | None:
        """Namespace and name of the Secret that the resource names."""
        redis = self.spec.redis if self.spec is not None else None
        return None if redis is None else (self.meta.namespace, redis.secret_ref.name)

    @property
    def deletion_policy(self) -> str:
        """What becomes of the scheduler when the resource goes; Delete where nobody can know."""
        return self.spec.deletion_policy if self.spec is not None else "Delete"

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


#: uids of deleted resources that are remembered: 60 bytes each.
_MOST_GONE = 20_000


@dataclass(slots=True)
class Table:
    """Entries by key, newest version only."""

    _entries: dict[ResourceKey, Entry] = field(default_factory=dict)
    #: those of them that name a Secret: they are gone through once a second
    _with_secret: set[ResourceKey] = field(default_factory=set)
    #: uids of those that are gone, the latest last: an answer that was long on its way may still tell of one
    _gone: dict[str, None] = field(default_factory=dict)

    def put(self, entry: Entry) -> bool:
        """Take in an entry. Returns whether something changed that decides what to do.

        What was dropped, or made anew, does not come back: a list, or the answer to a write, may be older than that.
        """
        if entry.meta.uid in self._gone:
            return False
        before = self._entries.get(entry.key)
        if before is not None:
            if before.meta.uid == entry.meta.uid:
                if _older(entry.meta, before.meta):
                    return False
            elif _made_before(entry.meta, before.meta):
                return False
            elif _made_before(before.meta, entry.meta):
                self._forget(before.meta.uid)
        self._entries[entry.key] = entry
        (self._with_secret.discard if entry.secret is None else self._with_secret.add)(entry.key)
        return before is None or before.differs_for_us(entry)

    def has_version(self, body: Mapping[str, Any]) -> bool:
        """Whether this very version of a resource is here already."""
        metadata = body.get("metadata") or {}
        entry = self._entries.get(key_of(body))
        version = metadata.get("resourceVersion")
        return (
            entry is not None
            and bool(version)
            and (entry.meta.uid, entry.meta.resource_version) == (metadata.get("uid"), version)
        )

    def drop(self, key: ResourceKey, uid: str) -> Entry | None:
        """Forget a resource that was deleted. Returns its last entry, None where another took its name since."""
        self._forget(uid)
        entry = self._entries.get(key)
        if entry is None or entry.meta.uid != uid:
            return None
        self._with_secret.discard(key)
        return self._entries.pop(key)

    def _forget(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def get(self, key: ResourceKey) -> Entry | None:
        """The newest entry of a resource."""
        return self._entries.get(key)

    def with_secrets(self) -> Iterator[tuple[ResourceKey, tuple[str, str]]]:
        """The resources that name a Secret, each with that Secret's namespace and name."""
        for key in tuple(self._with_secret):
            secret = self._entries[key].secret
            if secret is not None:
                yield key, secret

    def __len__(self) -> int:
        """How many resources there are."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """All entries."""
        return iter(tuple(self._entries.values()))


def key_of(body: Mapping[str, Any]) -> ResourceKey:
    """Namespace and name of a body."""
    metadata = body.get("metadata") or {}
    return ResourceKey(metadata.get("namespace") or "", metadata.get("name") or "")


def _ours(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata without what only others read: kubectl's last-applied-configuration is as long as the spec."""
    annotations = metadata.get("annotations") or {}
    own = {key: value for key, value in annotations.items() if key.startswith(f"{GROUP}/")}
    return {**metadata, "annotations": own, "labels": {}}


def _made_before(meta: ResourceMeta, than: ResourceMeta) -> bool:
    one, other = meta.creation_timestamp, than.creation_timestamp
    return one is not None and other is not None and one < other


def _older(meta: ResourceMeta, than: ResourceMeta) -> bool:
    # resourceVersions of one object are comparable as integers (KEP-5504); where one is not, the later word counts.
    if meta.resource_version.isdigit() and than.resource_version.isdigit():
        return int(meta.resource_version) < int(than.resource_version)
    return False
