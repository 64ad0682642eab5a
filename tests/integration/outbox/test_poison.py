"""A row that kills its worker dies alone."""

import asyncio
import os
import signal
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.integration.outbox.benches import LEASE, Bench, PostgresBench, claim, ids
from tickkeeper.outbox import NewRow, Replayed, enqueue_many_sync

KILLER = 137
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("rows", "most"), [(1_000, 3), (60, 1), (60, 2)])
async def test_c10_only_the_row_that_kills_its_worker_dies(bench: Bench, rows: int, most: int) -> None:
    killer = None
    for number in range(rows):
        sent = await bench.enqueue(payload=number, max_attempts=most)
        killer = sent.id if number == KILLER % rows else killer
    delivered: Counter[object] = Counter()
    deaths = buried = 0
    while await bench.store.kinds("acme"):
        taken = await claim(bench, limit=500)
        buried += taken.buried
        if killer in ids(taken):
            deaths += 1  # and with it goes what it held
            await bench.elapse(LEASE)
            continue
        settled = await bench.store.ack(taken.lease_id, ids(taken))
        assert settled.fenced == 0
        delivered.update(ids(taken))
    assert (len(delivered), set(delivered.values())) == (rows - 1, {1})
    assert (deaths, buried) == (most, 1)
    assert [(row.id, row.reason) for row in await bench.store.dead_letters.latest()] == [(killer, "lost")]


async def test_c10_with_real_processes(postgres: PostgresBench, dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn) as producer:
        payloads = ["kill" if number == KILLER else number for number in range(1_000)]
        sent = enqueue_many_sync(producer, [NewRow("acme", "mail", each, max_attempts=3) for each in payloads])
    killer = sent[KILLER].id
    notes = tmp_path / "started"
    notes.touch()
    ends = []
    for _ in range(4):
        child = [sys.executable, str(Path(__file__).with_name("suicidal.py")), str(notes)]
        paths = os.pathsep.join([str(ROOT / "operator"), str(ROOT)])
        worker = await asyncio.create_subprocess_exec(*child, env={**os.environ, "DSN": dsn, "PYTHONPATH": paths})
        ends.append(await asyncio.wait_for(worker.wait(), 120))
    assert ends == [-signal.SIGKILL] * 3 + [0]
    started = Counter(int(line) for line in notes.read_text().split())
    assert set(started) == {each.id for each in sent}
    assert started[killer] == 3
    assert [(row.id, row.reason) for row in await postgres.store.dead_letters.latest()] == [(killer, "lost")]
    assert await postgres.store.dead_letters.replay() == Replayed(1)
    (row,) = (await claim(postgres)).rows
    assert (row.id, row.attempts, row.suspect) == (killer, 1, False)


async def test_neighbours_lose_no_attempt_that_matters(bench: Bench) -> None:
    """However often a neighbour dies with them, rows of a batch keep their last attempt for themselves."""
    rows = [(await bench.enqueue(max_attempts=2)).id for _ in range(20)]
    await claim(bench)
    await bench.elapse(LEASE)
    alone = [await claim(bench) for _ in rows]
    assert sorted(row for each in alone for row in ids(each)) == rows
    assert all(each.alone and each.rows[0].attempts == 2 and not each.buried for each in alone)
    for each in alone:
        assert (await bench.store.ack(each.lease_id, ids(each))).changed == 1
    assert await bench.store.dead_letters.latest() == []


async def test_a_suspect_is_not_started_beside_plain_rows(bench: Bench) -> None:
    suspect = await bench.enqueue()
    await claim(bench, lease=timedelta(seconds=1))
    await bench.elapse(timedelta(seconds=1))
    for _ in range(10):
        await bench.enqueue()
    first, second = await claim(bench), await claim(bench)
    assert (ids(first), first.alone, len(second.rows), second.alone) == ([suspect.id], True, 10, False)
