"""What a claim of the in-memory outbox takes, by the rules of PostgreSQL's claim."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tickkeeper.outbox.runs import MAX_RUN, Habit, Habits, share_of
from tickkeeper.testing.entry import Entry
from tickkeeper.testing.keys import Keys


@dataclass(frozen=True, slots=True)
class Asked:
    """What to claim, and under which lease."""

    tenant_id: str
    limit: int
    lease_id: UUID
    lease: timedelta
    now: datetime
    #: whether rows of a kind are asked for and not paused
    wants: Callable[[str], bool]


class Claims:
    """Takes rows out of ``live``; learns about a tenant's runs as the real one does."""

    def __init__(self, live: dict[int, Entry], keys: Keys, max_bytes: int) -> None:
        self._live = live
        self._keys = keys
        self._max_bytes = max_bytes
        self._habits = Habits()

    def due(self, asked: Asked) -> list[Entry]:
        """The rows that can be claimed, oldest first."""
        found = [
            each
            for each in self._live.values()
            if each.tenant_id == asked.tenant_id and each.due(asked.now) and asked.wants(each.kind)
        ]
        return sorted(found, key=lambda each: (each.available_at, each.id))

    def take(self, due: list[Entry], asked: Asked) -> list[Entry]:
        """Lease what one claim takes of the rows that are due."""
        if not due:
            return []
        if due[0].alone:
            self._lease(due[0], asked)
            self._fence(due[0], asked.lease_id)
            return due[:1]
        habit = self._habits.of(asked.tenant_id)
        first = self._first(due, habit, asked.limit)
        heads = [each for each in first if each.ordering_key is not None]
        room, share = share_of(asked.limit, len(first), len(heads))
        for each in first:
            self._lease(each, asked)
        runs = self._runs(heads, room, share, sum(len(each.payload) for each in first), asked)
        habit.learn(len(first) - len(heads), len(heads), [len(runs[each.id]) for each in heads], share)
        if heads:
            self._habits.keep(asked.tenant_id, habit)
        return [row for each in first for row in (each, *runs.get(each.id, ()))]

    def _first(self, due: list[Entry], habit: Habit, limit: int) -> list[Entry]:
        taken: list[Entry] = []
        size, load = 0, 0.0
        for entry in [each for each in due if not each.alone][: habit.ask(limit)]:
            if size >= self._max_bytes or load >= limit:
                break
            taken.append(entry)
            size += len(entry.payload.encode())
            load += 1 if entry.ordering_key is None else habit.weigh(limit)
        return taken

    def _runs(self, heads: list[Entry], room: int, share: int, size: int, asked: Asked) -> dict[int, list[Entry]]:
        runs: dict[int, list[Entry]] = {each.id: [] for each in heads}
        taken = 0
        for head in heads:
            for row in self._keys.behind(head, share):
                if not _plain(row, asked) or taken >= room or size >= self._max_bytes:
                    break
                self._lease(row, asked)
                runs[head.id].append(row)
                taken += 1
                size += len(row.payload.encode())
        return runs

    def _fence(self, head: Entry, lease_id: UUID) -> None:
        """The rest of a lost run is taken from whoever holds it."""
        for row in self._keys.behind(head, MAX_RUN):
            if row.lease_id not in (None, lease_id):
                row.lease_id = row.lease_until = None
                row.suspect = True

    def _lease(self, entry: Entry, asked: Asked) -> None:
        entry.attempts += 1
        entry.suspect = entry.suspect or entry.lease_id is not None
        entry.lease_id, entry.lease_until, entry.open = asked.lease_id, asked.now + asked.lease, False


def _plain(row: Entry, asked: Asked) -> bool:
    """Whether a row can be taken along behind another."""
    due = row.due_at is not None and row.due_at <= asked.now
    return due and not row.alone and not row.locked and asked.wants(row.kind)
