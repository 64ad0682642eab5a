"""mnemora's outbox table behind the interface of ``OutboxStore``, by mnemora's rules.

What differs from the own outbox: ids are uuids, there are no headers, and a failure is final: there is no maximum of
attempts and no back-off, and failed rows stay in the table. A handler that wants another try says ``Retry(after)`` with
a delay. A peer claims by its own clock and its own lease, so a row may be handled twice where those differ from ours.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.resources import files
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

from psycopg.rows import TupleRow

from tickkeeper.outbox.arguments import checked_limit, lease_seconds, unique_kinds
from tickkeeper.outbox.calls import Calls
from tickkeeper.outbox.dsn import Dsn
from tickkeeper.outbox.new_row import MAX_DELAY
from tickkeeper.outbox.pool import StoreConnection
from tickkeeper.outbox.queries import with_schema
from tickkeeper.outbox.store import READY_COUNTED, Claim, Failure, Oldest, Row, SchemaError, Settled, Snooze
from tickkeeper.outbox.text import clean_error

#: What its own examples use. Peers judge our claims by theirs, so a shorter one of ours is no use to anybody.
DEFAULT_LEASE = timedelta(minutes=30)
DEFAULT_SCHEMA = "public"

_QUERY_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class MnemoraOutbox:
    """``OutboxStore`` on mnemora's table; open, close and outages as with ``PostgresOutbox``."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        default_lease: timedelta = DEFAULT_LEASE,
        max_connections: int = 4,
        connect_timeout: int = 5,
        pool_timeout: float = 5.0,
        call_timeout: float = 15.0,
    ) -> None:
        """ValueError: the dsn cannot be read, the schema's name or the default lease is not allowed."""
        lease_seconds(default_lease)
        self.default_lease = default_lease
        self._schema = schema
        text = files("tickkeeper.outbox.mnemora").joinpath("outbox.sql").read_text(encoding="utf-8")
        _, *parts = _QUERY_NAME.split(text)
        self._queries = {name: with_schema(query, schema) for name, query in zip(parts[::2], parts[1::2], strict=True)}
        self._calls = Calls(
            Dsn(dsn),
            schema=schema,
            min_size=1,
            max_size=max_connections,
            transactions=1,
            pool_timeout=pool_timeout,
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
        )

    async def open(self) -> Self:
        """Start connecting; does not wait for it."""
        await self._calls.open()
        return self

    async def close(self) -> None:
        """Let calls under way end, bounded, then give the connections back; safe to call twice."""
        await self._calls.close()

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def claim(self, tenant_id: str, *, kinds: Sequence[str] | None, limit: int, lease: timedelta) -> Claim:
        """See ``OutboxStore``. ``lease``: after so long a claim of anybody's, a peer's too, counts as given up."""
        lease_id = uuid4()
        wanted = list(await self.kinds(tenant_id)) if kinds is None else unique_kinds(kinds)
        if not wanted:
            return Claim(lease_id)

        async def hand_back(records: list[TupleRow]) -> None:
            await self.release(lease_id, [record[1] for record in records])

        records = await self._query(
            "claim",
            {
                "tenant_id": tenant_id,
                "kinds": wanted,
                "limit": checked_limit(limit),
                "lease": lease_seconds(lease),
                "token": _token(lease_id),
            },
            abandoned=hand_back,
        )
        rows, unreadable = _rows(tenant_id, records)
        if unreadable:
            await self.fail(lease_id, unreadable)
        return Claim(lease_id, tuple(rows), len(unreadable), alone=bool(rows and rows[0].suspect))

    async def kinds(self, tenant_id: str) -> tuple[str, ...]:
        """See ``OutboxStore``."""
        return tuple(kind for (kind,) in await self._query("kinds", {"tenant_id": tenant_id}))

    async def ack(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``. The row stays, completed."""
        return await self._settle("ack", lease_id, _uuids(ids))

    async def fail(self, lease_id: UUID, failures: Sequence[Failure]) -> Settled:
        """A failure is final, and counts as dead, unless its ``after`` is given."""
        given = {_uuid(each.id): each for each in reversed(failures)}
        return await self._settle(
            "fail",
            lease_id,
            list(given),
            errors=[clean_error(each.error) for each in given.values()],
            afters=[_delay(each) for each in given.values()],
        )

    async def snooze(self, lease_id: UUID, snoozes: Sequence[Snooze]) -> Settled:
        """See ``OutboxStore``."""
        given = {_uuid(each.id): each for each in reversed(snoozes)}
        return await self._settle("snooze", lease_id, list(given), untils=[each.until for each in given.values()])

    async def release(self, lease_id: UUID, ids: Sequence[int | UUID]) -> Settled:
        """See ``OutboxStore``. The attempt stays counted: it is what peers tell one claim from the next by."""
        return await self._settle("release", lease_id, _uuids(ids))

    async def renew(self, lease_id: UUID, ids: Sequence[int | UUID], lease: timedelta) -> Settled:
        """See ``OutboxStore``. How long that is, each claimer judges by its own lease."""
        lease_seconds(lease)
        return await self._settle("renew", lease_id, _uuids(ids))

    async def oldest(self, tenant_id: str) -> Oldest:
        """See ``OutboxStore``; a claim counts as given up after the default lease."""
        lease = self.default_lease.total_seconds()
        named = {"tenant_id": tenant_id, "bound": READY_COUNTED, "lease": lease}
        ((seconds, ready),) = await self._query("oldest", named)
        return Oldest(seconds, ready)

    async def _settle(self, name: str, lease_id: UUID, ids: list[UUID], **values: Any) -> Settled:
        if not ids:
            return Settled(0)
        records = await self._query(name, {"ids": ids, "token": _token(lease_id), **values})
        changed = {row_id for row_id, _ in records}
        lost = tuple(each for each in ids if each not in changed)
        return Settled(len(changed), len(lost), sum(dead for _, dead in records), lost)

    async def _query(self, name: str, values: Mapping[str, Any], **options: Any) -> list[TupleRow]:
        async def work(connection: StoreConnection) -> list[TupleRow]:
            cursor = await connection.execute(self._queries[name], values)
            return await cursor.fetchall()

        try:
            return await self._calls.run(work, **options)
        except SchemaError:
            raise SchemaError(
                f'no outbox of mnemora in the schema "{self._schema}": must be the one that its migrations '
                "(npx mnemora-postgres-migrate) made, see TICKKEEPER_DATABASE_SCHEMA"
            ) from None


def _token(lease_id: UUID) -> str:
    return f"tickkeeper:{lease_id}"


def _rows(tenant_id: str, records: list[TupleRow]) -> tuple[list[Row], list[Failure]]:
    """Claimed records as rows, and those that cannot be read: JSON that PostgreSQL takes and Python does not."""
    rows: list[Row] = []
    unreadable: list[Failure] = []
    for again, row_id, kind, payload, attempts, available_at, created_at in records:
        try:
            content = json.loads(payload)
        except (ValueError, RecursionError) as error:
            unreadable.append(Failure(row_id, f"the payload cannot be read: {error}", dead=True))
            continue
        # Each attempt is the last: a failure is final here.
        rows.append(Row(row_id, tenant_id, kind, content, {}, attempts, attempts, available_at, created_at, again))
    return rows, unreadable


def _delay(failure: Failure) -> float | None:
    if failure.dead or failure.after is None:
        return None
    return min(max(failure.after, timedelta()), MAX_DELAY).total_seconds()


def _uuids(ids: Sequence[int | UUID]) -> list[UUID]:
    return list(dict.fromkeys(map(_uuid, ids)))


def _uuid(row_id: int | UUID) -> UUID:
    if not isinstance(row_id, UUID):
        raise ValueError(f"row id is {row_id!r}: must be a UUID in this store")  # noqa: TRY004 - one error for all
    return row_id
