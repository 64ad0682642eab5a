"""A small outbox in memory whose faults can be arranged, and rows for it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from tickkeeper.outbox.store import Claim, Failure, Oldest, Row, Settled, Snooze

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def row(row_id: int = 1, kind: str = "mail.send", **fields: Any) -> Row:
    """One row with what a test does not care about filled in."""
    given = {
        "tenant_id": "acme",
        "payload": {"n": row_id},
        "headers": {},
        "attempts": 1,
        "max_attempts": 20,
        "available_at": EPOCH,
        "created_at": EPOCH,
    }
    return Row(id=row_id, kind=kind, **{**given, **fields})


async def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.001)


class FakeOutbox:
    """Rows of any tenant; a lease ends only when the test ends it (``expire``). ``before`` may raise or wait."""

    default_lease = timedelta(seconds=30)

    def __init__(self, *rows: Row, alone: bool = False) -> None:
        self.alone = alone
        self.rows: dict[Any, Row] = {each.id: replace(each, attempts=each.attempts - 1) for each in rows}
        self.leases: dict[Any, UUID] = {}
        self.scheduled: dict[Any, Any] = {}
        self.dead: dict[Any, str] = {}
        self.errors: dict[Any, str] = {}
        self.acked: list[Any] = []
        self.released: list[Any] = []
        self.calls: list[str] = []
        self.renewals: list[tuple[Any, ...]] = []
        self.before: Callable[[str], Any] = lambda _name: None
        self.closed = False

    async def _begin(self, name: str) -> None:
        self.calls.append(name)
        await asyncio.sleep(0)
        waiting = self.before(name)
        if waiting is not None:
            await waiting

    def expire(self) -> None:
        self.leases.clear()

    def _ready(self, tenant_id: str, kinds: Any = None) -> list[Row]:
        return [
            each
            for each in self.rows.values()
            if each.tenant_id == tenant_id
            and each.id not in self.leases
            and each.id not in self.scheduled
            and (kinds is None or each.kind in kinds)
        ]

    async def claim(self, tenant_id: str, *, kinds: Any, limit: int, lease: timedelta) -> Claim:
        await self._begin("claim")
        lease_id = uuid4()
        taken = []
        for each in self._ready(tenant_id, kinds)[:limit]:
            self.rows[each.id] = replace(each, attempts=each.attempts + 1)
            self.leases[each.id] = lease_id
            taken.append(self.rows[each.id])
        return Claim(lease_id, tuple(taken), alone=self.alone and bool(taken))

    async def kinds(self, tenant_id: str) -> set[str]:
        await self._begin("kinds")
        return {each.kind for each in self.rows.values() if each.tenant_id == tenant_id}

    def _mine(self, lease_id: UUID, ids: Any) -> list[Any]:
        return [each for each in ids if self.leases.get(each) == lease_id]

    async def ack(self, lease_id: UUID, ids: Any) -> Settled:
        await self._begin("ack")
        mine = self._mine(lease_id, ids)
        for each in mine:
            del self.rows[each], self.leases[each]
        self.acked += mine
        return Settled(len(mine), len(ids) - len(mine), lost=tuple(each for each in ids if each not in mine))

    async def fail(self, lease_id: UUID, failures: Any) -> Settled:
        await self._begin("fail")
        mine = self._mine(lease_id, [each.id for each in failures])
        dead = 0
        for each in failures:
            if each.id not in mine:
                continue
            del self.leases[each.id]
            self.errors[each.id] = each.error
            if each.dead or self.rows[each.id].attempts >= self.rows[each.id].max_attempts:
                self.dead[each.id] = each.error
                del self.rows[each.id]
                dead += 1
            else:
                self.scheduled[each.id] = each
        return Settled(len(mine), len(failures) - len(mine), dead)

    async def snooze(self, lease_id: UUID, snoozes: Any) -> Settled:
        await self._begin("snooze")
        mine = self._mine(lease_id, [each.id for each in snoozes])
        for each in snoozes:
            if each.id in mine:
                del self.leases[each.id]
                self.scheduled[each.id] = each
                self._uncount(each.id)
        return Settled(len(mine), len(snoozes) - len(mine))

    async def release(self, lease_id: UUID, ids: Any) -> Settled:
        await self._begin("release")
        mine = self._mine(lease_id, ids)
        for each in mine:
            del self.leases[each]
            self._uncount(each)
        self.released += mine
        return Settled(len(mine), len(ids) - len(mine))

    async def renew(self, lease_id: UUID, ids: Any, lease: timedelta) -> Settled:
        await self._begin("renew")
        mine = self._mine(lease_id, ids)
        self.renewals.append(tuple(ids))
        return Settled(len(mine), len(ids) - len(mine))

    async def oldest(self, tenant_id: str) -> Oldest:
        await self._begin("oldest")
        ready = len(self._ready(tenant_id))
        return Oldest(1.5 if ready else None, ready)

    async def close(self) -> None:
        self.closed = True

    def _uncount(self, row_id: Any) -> None:
        self.rows[row_id] = replace(self.rows[row_id], attempts=self.rows[row_id].attempts - 1)


__all__ = ["EPOCH", "Failure", "FakeOutbox", "Snooze", "row"]
