"""Claiming in PostgreSQL: batches, runs of ordering keys, and what a claim does besides."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import TupleRow
from pydantic_core import from_json

from tickkeeper.outbox.arguments import MAX_LIMIT
from tickkeeper.outbox.calls import StatementTimedOut
from tickkeeper.outbox.plain import PlainRows
from tickkeeper.outbox.pool import StoreConnection
from tickkeeper.outbox.runs import MAX_RUN, Habit, Habits, share_of
from tickkeeper.outbox.statements import Statements
from tickkeeper.outbox.store import Claim, Failure, Row, Settled
from tickkeeper.outbox.walk import Place, Walks

#: Rows that one claim buries before it returns without rows.
_MAX_BURIED = 100
#: Rows to look at (limit times kinds) from which on PostgreSQL's estimate of a claim nears jit_above_cost.
_JIT_THRESHOLD = 10_000
#: How often a claim looks again where a peer held what it was looking for.
_MAX_LOOKS = 4
#: Notes of keys to look after: so many a statement, which takes about so many seconds at most; so many statements a
#: claim, and how long they may be left alone. Seconds.
_MAX_CHECKS = 100
_CHECK_SECONDS = 0.25
_MAX_CHECK_STATEMENTS = 5
_CHECK_EVERY = 1.0
#: Seconds after which a person's command leaves notes that all wait to the claims.
_CHECKS_IN_VAIN = 5.0
_MOST_TENANTS = 1_000

#: Places in a claimed record.
_ID, _PAYLOAD, _AVAILABLE_AT, _ORDERING_KEY = 0, 2, 6, 10
_ORDER, _PAYLOAD_OF = itemgetter(_AVAILABLE_AT, _ID), itemgetter(_PAYLOAD)

Release = Callable[[UUID, Sequence[int]], Awaitable[object]]
Fail = Callable[[UUID, list[Failure]], Awaitable[Settled]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to claim; ``lease`` in seconds."""

    tenant_id: str
    kinds: list[str]
    limit: int
    lease: float
    max_bytes: int
    #: whether a row that dies blocks its ordering key
    block: bool


@dataclass(frozen=True, slots=True)
class _Taken:
    buried: int
    alone: bool
    records: list[TupleRow]
    #: whether others have locked rows that are due; None where that was not looked for
    left: bool | None = None


class PostgresClaims:
    """``claim`` of PostgresOutbox; ``release`` and ``fail`` are that one's."""

    def __init__(self, statements: Statements, *, release: Release, fail: Fail) -> None:
        self._statements = statements
        self._release = release
        self._fail = fail
        #: Halved when the server's statement_timeout ends a claim, and grown back by those that pass.
        self._ceiling = MAX_LIMIT
        self._habits = Habits()
        self._plain = PlainRows()
        self.walks = Walks()
        #: Of each tenant, when its notes were looked at, and the one behind which to go on: those that wait for
        #: somebody's transaction must not keep the others from their turn.
        self._checked: dict[str, float] = {}
        self._noted: dict[str, int] = {}

    async def claim(self, wanted: Wanted) -> Claim:
        """See ``OutboxStore``."""
        claim = Claim(uuid4())
        looks, buried = 0, 0
        while wanted.kinds and buried < _MAX_BURIED:
            size = min(wanted.limit, self._ceiling)
            try:
                claim, left = await self._take(replace(wanted, limit=size))
            except StatementTimedOut:
                if size == 1:
                    raise
                self._ceiling = size // 2
                continue
            buried += claim.buried
            if claim.rows:
                self._ceiling = min(MAX_LIMIT, self._ceiling + self._ceiling // 8 + 1)
                break
            if claim.buried:
                continue
            if await self._look_after_keys(wanted.tenant_id):
                continue
            looks += 1
            if looks == _MAX_LOOKS or not (await self._due_left(wanted) if left is None else left):
                break
            await asyncio.sleep(random.uniform(0.002, 0.02) * looks)  # noqa: S311 - spreads competitors
        if claim.rows and self._overdue(wanted.tenant_id):
            await self._look_after_keys(wanted.tenant_id)
        return replace(claim, buried=buried)

    async def look_after_keys(self, tenant_id: str | None = None) -> None:
        """Work off what was noted of one tenant's keys, or of all."""
        above: int | None = 0
        useful = time.monotonic()
        while above is not None and time.monotonic() - useful < _CHECKS_IN_VAIN:
            done, above = await self._check(tenant_id, above)
            if done:
                useful = time.monotonic()

    async def _take(self, wanted: Wanted) -> tuple[Claim, bool | None]:
        lease_id, habit = uuid4(), self._habits.of(wanted.tenant_id)

        async def work(connection: StoreConnection) -> _Taken:
            return await self._on(connection, wanted, lease_id, habit)

        async def hand_back(taken: _Taken) -> None:
            await self._release(lease_id, [record[_ID] for record in taken.records])

        taken = await self._statements.run(work, abandoned=hand_back)
        buried = taken.buried
        rows, unreadable = _rows(wanted.tenant_id, taken.records)
        if unreadable:
            # Else they would come back for ever, and take the rest of their batch along each time.
            buried += (await self._fail(lease_id, unreadable)).dead
        size = sum(map(len, map(_PAYLOAD_OF, taken.records)))
        return Claim(lease_id, tuple(rows), buried, alone=taken.alone and bool(rows), size=size), taken.left

    async def _on(self, connection: StoreConnection, wanted: Wanted, lease_id: UUID, habit: Habit) -> _Taken:
        given = {
            "tenant_id": wanted.tenant_id,
            "kinds": wanted.kinds,
            "limit": wanted.limit,
            "lease": wanted.lease,
            "lease_id": lease_id,
        }
        more = {
            "max_bytes": wanted.max_bytes,
            "ask": habit.ask(wanted.limit),
            "weight": habit.weigh(wanted.limit),
            "block": wanted.block,
        }
        if len(wanted.kinds) == 1 and not self._habits.known(wanted.tenant_id):
            taken = await self._plain_rows(connection, wanted, given)
            if taken is not None:
                return taken
        costly = wanted.limit * len(wanted.kinds) > _JIT_THRESHOLD
        async with connection.transaction() if costly else nullcontext():
            if costly:
                await connection.execute(self._statements["no_jit"])
            cursor = await connection.execute(self._statements["claim"], {**given, **more}, binary=True)
            found = await cursor.fetchall()
        buried, alone = found[0][:2]
        records = [record[2:] for record in found if record[2] is not None]
        heads = [record[_ID] for record in records if record[_ORDERING_KEY] is not None]
        if not heads:
            if records and not alone:
                habit.learn(len(records), 0, (), 0)
            return _Taken(buried, bool(alone), records)
        self._habits.keep(wanted.tenant_id, habit)
        if alone:
            await connection.execute(self._statements["fence"], {"heads": heads, "lease_id": lease_id, "most": MAX_RUN})
            return _Taken(buried, True, records)
        room, share = share_of(wanted.limit, len(records), len(heads))
        left = wanted.max_bytes - sum(len(record[_PAYLOAD]) for record in records)
        behind = await self._behind(
            connection, {**given, "heads": heads, "room": room, "share": share, "max_bytes": left}
        )
        by_key: dict[str, list[TupleRow]] = {}
        for record in behind:
            by_key.setdefault(record[_ORDERING_KEY], []).append(record)
        followers = [len(by_key.get(record[_ORDERING_KEY], ())) for record in records if record[_ORDERING_KEY]]
        habit.learn(len(records) - len(heads), len(heads), followers, share)
        return _Taken(
            buried, False, [each for record in records for each in (record, *by_key.get(record[_ORDERING_KEY], ()))]
        )

    async def _plain_rows(self, connection: StoreConnection, wanted: Wanted, given: Mapping[str, Any]) -> _Taken | None:
        """What was claimed where all that is due is plain; None where it has to be claimed with more care."""
        if not self._plain.likely(wanted.tenant_id):
            return None
        kind = wanted.kinds[0]
        of, began = (wanted.tenant_id, kind), time.monotonic()
        behind = self.walks.place(of, began)
        told = await self._told(connection, wanted, given, behind)
        if behind is not None and (not told or told[0][0] is None):
            behind = None
            self.walks.over(of)
            told = await self._told(connection, wanted, given, behind)
        if told and told[0][0] is None:
            if told[0][1] == "held":
                return _Taken(0, False, [], left=True)
            self._plain.missed(wanted.tenant_id)
            return None
        self._plain.found(wanted.tenant_id)
        records: list[TupleRow] = [
            (row_id, kind, payload, headers, attempts, most, due, created, False, dedup, None)
            for row_id, payload, headers, attempts, most, due, created, dedup in told
        ]
        records.sort(key=_ORDER)
        if len(records) < wanted.limit:
            self.walks.over(of)
        else:
            ended, last = time.monotonic(), _ORDER(records[-1])
            self.walks.went(of, behind=behind, last=last, rows=len(records), began=began, ended=ended)
        return _Taken(0, False, records, left=False)

    async def _told(
        self, connection: StoreConnection, wanted: Wanted, given: Mapping[str, Any], behind: Place | None
    ) -> list[TupleRow]:
        behind_at, behind_id = behind or ("-infinity", 0)
        values = {
            **given,
            "kind": wanted.kinds[0],
            "max_bytes": wanted.max_bytes,
            "behind_at": behind_at,
            "behind_id": behind_id,
        }
        cursor = await connection.execute(self._statements["claim_plain"], values, binary=True)
        return await cursor.fetchall()

    async def _behind(self, connection: StoreConnection, given: Mapping[str, Any]) -> list[TupleRow]:
        if not given["room"] or given["max_bytes"] <= 0:
            return []
        try:
            cursor = await connection.execute(self._statements["run"], given, binary=True)
            return await cursor.fetchall()
        except psycopg.errors.QueryCanceled:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raise  # the first rows are undone with it
            return []  # the server's statement_timeout: the first rows alone will do

    async def _look_after_keys(self, tenant_id: str) -> bool:
        """True where something was to be done, and nothing stood in the way: it is worth claiming again."""
        if not (self._habits.known(tenant_id) or self._overdue(tenant_id)):
            return False
        self._checked[tenant_id] = time.monotonic()
        if len(self._checked) > _MOST_TENANTS:
            self._checked.clear()
            self._noted.clear()
        above = self._noted.pop(tenant_id, 0)
        from_start, began = above == 0, time.monotonic()
        for _ in range(_MAX_CHECK_STATEMENTS):
            done, behind = await self._check(tenant_id, above)
            above = behind or 0
            if above:
                self._noted[tenant_id] = above
            else:
                self._noted.pop(tenant_id, None)
            if done or (from_start and not above) or time.monotonic() - began > _CHECK_SECONDS:
                return done
            from_start = from_start or not above
        return False

    async def _check(self, tenant_id: str | None, above: int) -> tuple[bool, int | None]:
        """Whether any of the next notes is done with, and the id behind which to go on; None at the last one."""
        given = {"tenant_id": tenant_id, "above": above, "limit": _MAX_CHECKS, "seconds": _CHECK_SECONDS}
        ((done, behind),) = await self._statements.query("checks", given)
        return done > 0, behind

    def _overdue(self, tenant_id: str) -> bool:
        return time.monotonic() - self._checked.get(tenant_id, float("-inf")) > _CHECK_EVERY

    async def _due_left(self, wanted: Wanted) -> bool:
        given = {"tenant_id": wanted.tenant_id, "kinds": wanted.kinds}
        ((left,),) = await self._statements.query("due_left", given)
        return bool(left)


def _rows(tenant_id: str, records: list[TupleRow]) -> tuple[list[Row], list[Failure]]:
    """Claimed records as rows, and those that cannot be read: JSON that PostgreSQL takes and Python does not.

    Rows behind an unreadable one of their ordering key are neither: failing that one hands them back.
    """
    with suppress(ValueError):  # else one by one, with more patience
        return [_row(tenant_id, record, from_json) for record in records], []
    rows, unreadable = [], []
    broken: set[str | None] = set()
    for record in records:
        ordering = record[_ORDERING_KEY]
        if ordering is not None and ordering in broken:
            continue
        try:
            rows.append(_row(tenant_id, record, _decoded))
        except (ValueError, RecursionError) as error:
            unreadable.append(Failure(record[_ID], f"the payload cannot be read: {error}", dead=True))
            broken.add(ordering)
    return rows, unreadable


def _row(tenant_id: str, record: TupleRow, decoded: Callable[[str], Any]) -> Row:
    row_id, kind, payload, headers, attempts, most, due, created, suspect, dedup, ordering = record
    return Row(
        row_id,
        tenant_id,
        kind,
        decoded(payload),
        decoded(headers) if headers else {},
        attempts,
        most,
        due,
        created,
        suspect,
        dedup,
        ordering,
    )


def _decoded(text: str) -> Any:
    """JSON as PostgreSQL wrote it. pydantic's parser is several times as fast, but gives up at 200 levels."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)
