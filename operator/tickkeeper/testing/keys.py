"""Strict order per key in the in-memory outbox: which row of a key is the first, as PostgreSQL's triggers have it."""

from tickkeeper.testing.entry import Entry

Key = tuple[str, str]


class Keys:
    """The ordering keys of the rows in ``live``; ``dead`` rows may block theirs."""

    def __init__(self, live: dict[int, Entry], dead: dict[int, Entry]) -> None:
        self._live = live
        self._dead = dead
        self._noted: list[Key] = []

    def rows(self, key: Key) -> list[Entry]:
        """The living rows of a key, in the order of their ids."""
        return sorted(
            (each for each in self._live.values() if (each.tenant_id, each.ordering_key) == key),
            key=lambda each: each.id,
        )

    def busy(self, key: Key) -> bool:
        """Whether another row of it would be behind one."""
        return bool(self.rows(key)) or self._blocked(key)

    def behind(self, entry: Entry, most: int) -> list[Entry]:
        """Up to ``most`` rows directly behind one of its key; none where it has no key."""
        key = _key(entry)
        return [] if key is None else [each for each in self.rows(key) if each.id > entry.id][:most]

    def gone(self, entry: Entry) -> None:
        """A row has left ``live``: where it was the first, the next is: of its run, or the smallest."""
        key = _key(entry)
        if key is None or entry.due_at is not None or self._blocked(key):
            return
        after = self.behind(entry, len(self._live))
        rest = [each for each in after if entry.lease_id is not None and each.lease_id == entry.lease_id]
        if rest:
            _promote(rest[0])
            if rest[0] is not after[0]:
                self._noted.append(key)  # a row that was replayed into the run waits for its end
        elif rows := self.rows(key):
            _promote(rows[0])

    def note(self, entry: Entry) -> None:
        """Look after its key when there is time."""
        if key := _key(entry):
            self._noted.append(key)

    def look_after(self, tenant_id: str | None = None) -> bool:
        """Work off what was noted of a tenant, or of all; True where something was done."""
        wanted = {key for key in self._noted if tenant_id in (None, key[0])}
        done = {key for key in sorted(wanted) if self._mend(key)}
        self._noted = [key for key in self._noted if key not in done]
        return bool(done)

    def _mend(self, key: Key) -> bool:
        """Make the smallest row the first, unless the first is with a worker. False: ask again later."""
        rows = self.rows(key)
        if not rows or self._blocked(key):
            return True
        first = next((each for each in rows if each.due_at is None), None)
        if first is rows[0]:
            return True
        if first is not None:
            if first.lease_id is not None or first.locked:
                return False
            first.due_at = first.available_at
        _promote(rows[0])
        return True

    def _blocked(self, key: Key) -> bool:
        return any(each.blocks and _key(each) == key for each in self._dead.values())


def _key(entry: Entry) -> Key | None:
    return None if entry.ordering_key is None else (entry.tenant_id, entry.ordering_key)


def _promote(entry: Entry) -> None:
    if entry.due_at is not None:
        entry.available_at, entry.due_at = entry.due_at, None
