"""The fake answers as the real outbox does, call by call, over random histories."""

import random
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import psycopg
import pytest

from tests.integration.outbox.benches import Bench, MemoryBench, PostgresBench, claim
from tickkeeper.outbox import Claim, DuplicateRow, Failure, PostgresOutbox, Snooze, postgres_claim

KINDS = ("a", "b", "c")
#: Minutes, and never close to a sum of what elapses: the seconds that the test itself takes decide nothing.
WAITS = (timedelta(), timedelta(minutes=12), timedelta(minutes=60))
ELAPSE = (timedelta(minutes=8), timedelta(minutes=40))
LEASE = timedelta(minutes=20)


class History:
    """One outbox going through a history; ids are told by the order of insertion, since PostgreSQL leaves gaps."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.numbers: dict[Any, int] = {}
        self.claims: list[tuple[UUID, list[Any]]] = []

    async def step(self, action: str, chance: random.Random) -> Any:
        return await getattr(self, action)(chance)

    async def enqueue(self, chance: random.Random) -> Any:
        try:
            sent = await self.bench.enqueue(
                chance.choice(KINDS),
                chance.random(),
                max_attempts=chance.randint(1, 4),
                dedup_key=chance.choice([None, None, None, "k", "l"]),
                on_duplicate=chance.choice(["keep", "replace"]),
                delay=chance.choice(WAITS),
                ordering_key=chance.choice([None, None, "o", "o", "p"]),
            )
        except DuplicateRow:
            return "another ordering_key"
        return self.numbers.setdefault(sent.id, len(self.numbers)), sent.outcome

    async def claim(self, chance: random.Random) -> Any:
        kinds = chance.choice([None, ["a"], ["b", "c"], ["c", "a", "b"]])
        taken = await claim(self.bench, limit=chance.randint(1, 6), kinds=kinds, lease=LEASE)
        self.claims.append((taken.lease_id, [row.id for row in taken.rows]))
        return self._told(taken)

    async def settle(self, chance: random.Random) -> Any:
        if not self.claims:
            return None
        lease_id, rows = chance.choice(self.claims)
        some = [row for row in rows if chance.random() < 0.7]
        how = chance.choice(["ack", "fail", "snooze", "release", "renew"])
        store = self.bench.store
        if how == "ack":
            return await store.ack(lease_id, some)
        if how == "fail":
            waits = [(chance.choice(WAITS), chance.random() < 0.2) for _ in some]
            return await store.fail(
                lease_id, [Failure(row, "no", after, dead) for row, (after, dead) in zip(some, waits, strict=True)]
            )
        if how == "snooze":
            until = self.bench.now() + timedelta(minutes=12)
            return await store.snooze(lease_id, [Snooze(row, until) for row in some])
        if how == "release":
            return await store.release(lease_id, some)
        return await store.renew(lease_id, some, LEASE)

    async def transact(self, chance: random.Random) -> Any:
        if not self.claims:
            return None
        lease_id, rows = chance.choice(self.claims)
        async with self.bench.store.transaction(lease_id, rows) as work:
            for row in rows:
                if row in work.held and chance.random() < 0.7:
                    async with work.savepoint():
                        work.done(row)
        return sorted(self.numbers[row] for row in work.fenced)

    async def pause(self, chance: random.Random) -> Any:
        named = chance.choice([{"kind": "a"}, {"tenant_id": "acme", "kind": "b"}, {"tenant_id": "acme"}])
        store = self.bench.store
        if chance.random() < 0.6:
            return await store.resume(**named)
        await store.pause(**named)
        return [(each.tenant_id, each.kind) for each in await store.paused()]

    async def elapse(self, chance: random.Random) -> Any:
        await self.bench.elapse(chance.choice(ELAPSE))

    async def cancel(self, chance: random.Random) -> Any:
        return await self.bench.store.cancel("acme", dedup_key=chance.choice(["k", "l"]))

    async def replay(self, chance: random.Random) -> Any:
        done = await self.bench.store.dead_letters.replay(kind=chance.choice([None, *KINDS]))
        return done.replayed, [self.numbers[row] for row in done.skipped]

    async def purge(self, chance: random.Random) -> Any:
        return await self.bench.store.dead_letters.purge(older_than=timedelta(minutes=44), kind=chance.choice(KINDS))

    async def look(self, chance: random.Random) -> Any:
        store = self.bench.store
        shown = []
        for row in self.numbers:
            if found := await store.show(row):
                told = (
                    found.state,
                    found.kind,
                    found.attempts,
                    found.suspect,
                    found.error,
                    found.reason,
                    found.payload,
                    found.ordering_key,
                    found.blocks,
                )
                shown.append((self.numbers[row], *told))
        stats = [
            (each.kind, each.ready, each.leased, each.scheduled, each.behind, each.dead) for each in await store.stats()
        ]
        dead = [
            (self.numbers[row.id], row.reason, row.ordering_key, row.blocks)
            for row in await store.dead_letters.latest()
        ]
        return shown, stats, sorted(dead), (await store.oldest("acme")).ready, sorted(await store.kinds("acme"))

    def _told(self, taken: Claim) -> Any:
        rows = [
            (
                self.numbers[row.id],
                row.kind,
                row.attempts,
                row.max_attempts,
                row.suspect,
                row.payload,
                row.dedup_key,
                row.ordering_key,
            )
            for row in taken.rows
        ]
        return rows, taken.buried, taken.alone and bool(rows)


ACTIONS = (
    *["enqueue"] * 8,
    *["claim"] * 8,
    *["settle"] * 8,
    *["elapse"] * 5,
    *["look"] * 2,
    *["transact"] * 2,
    *("cancel", "replay", "purge", "pause"),
)


@pytest.mark.parametrize("seed", range(12))
async def test_same_history_same_answers(
    dsn: str, connection: "psycopg.AsyncConnection[Any]", monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Keys are looked after with every claim, and not once a second: the fake does so.
    monkeypatch.setattr(postgres_claim, "_CHECK_EVERY", -1.0)
    dead_heads: Literal["skip", "block"] = "skip" if seed % 2 else "block"
    async with PostgresOutbox(dsn, dead_heads=dead_heads) as store:
        real = History(PostgresBench(store, connection))
        fake = History(MemoryBench(dead_heads=dead_heads))
        script = random.Random(seed)
        seen = set()
        for number in range(200):
            action = script.choice(ACTIONS)
            chance = script.random()
            expected = await real.step(action, random.Random(chance))
            assert await fake.step(action, random.Random(chance)) == expected, f"step {number}: {action}"
            seen.add(action)
        assert seen == set(ACTIONS)
        last = random.Random(0)
        assert await fake.step("look", last) == await real.step("look", last)
