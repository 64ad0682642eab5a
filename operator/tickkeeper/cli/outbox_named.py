"""Dead letters that a command names by id, and what is said of those that it left."""

from collections.abc import Collection, Sequence
from typing import Self

from tickkeeper.cli.outbox_common import fail, some
from tickkeeper.outbox.store import ManagedOutbox


class Named:
    """Ids of a command line: ``of`` them before the command does its work, ``after`` it, then ``judge``."""

    def __init__(self, dead: Sequence[int], absent: Sequence[int]) -> None:
        self._dead = dead
        self._absent = absent
        self._left: list[int] = []

    @classmethod
    async def of(cls, store: ManagedOutbox, ids: Sequence[int] | None) -> Self:
        """Look which of them are dead letters."""
        dead: list[int] = []
        absent: list[int] = []
        for row_id in dict.fromkeys(ids or ()):
            (dead if await _is_dead(store, row_id) else absent).append(row_id)
        return cls(dead, absent)

    async def after(self, store: ManagedOutbox, *, skipped: Collection[object] = ()) -> Self:
        """Look which of them still are; ``skipped`` are told apart."""
        self._left = [each for each in self._dead if each not in skipped and await _is_dead(store, each)]
        return self

    def as_json(self) -> dict[str, list[int]]:
        """What was not done: no such dead letter, or one that the other options do not fit."""
        return {"absent": list(self._absent), "left": list(self._left)}

    def judge(self, *faults: str) -> None:
        """Exit with 1 and one line where not all of them were done, or where there are other ``faults``."""
        told = list(faults)
        if self._absent:
            told.append(f"no dead letter has id {some(self._absent)}")
        if self._left:
            told.append(f"left, since the other options do not fit it: id {some(self._left)}")
        if told:
            fail("; ".join(told))


async def _is_dead(store: ManagedOutbox, row_id: int) -> bool:
    row = await store.show(row_id)
    return row is not None and row.state == "dead"
