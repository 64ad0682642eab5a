"""Rows and their handlers' effects in one transaction of the store's database: exactly once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tickkeeper.outbox.store import Row, RowTransaction, StoreUnavailable, TransactionalStore
from tickkeeper.telemetry.logs import get_logger
from tickkeeper.telemetry.redaction import describe
from tickkeeper.worker.handlers import Handler
from tickkeeper.worker.invoke import Invoker, Put
from tickkeeper.worker.jobs import rows_in
from tickkeeper.worker.outcome import Fate, Verdict, failed
from tickkeeper.worker.stop import Stop

_log = get_logger(__name__)


@dataclass(slots=True)
class Ended:
    """What became of rows. ``done`` left with the commit; ``failed`` are still to be written; others were not begun.

    ``error``: no transaction could begin any more.
    """

    done: list[Row] = field(default_factory=list)
    fenced: list[Row] = field(default_factory=list)
    failed: list[tuple[Row, Verdict]] = field(default_factory=list)
    error: Exception | None = None

    def add(self, other: "Ended") -> None:
        """Append, in place."""
        self.done += other.done
        self.fenced += other.fenced
        self.failed += other.failed
        self.error = self.error or other.error

    def over(self, row: Row) -> bool:
        """Whether a row's key is over with: one before it in its run was lost or failed."""
        key = row.ordering_key
        return key is not None and (
            any(each.ordering_key == key for each in self.fenced)
            or any(each.ordering_key == key for each, _ in self.failed)
        )


class Undone(Exception):
    """A handler did not end well: what it did in the transaction is undone."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.error)
        self.verdict = verdict


class Transactions:
    """Runs one batch's rows of handlers with ``transaction=True``."""

    def __init__(self, store: TransactionalStore, lease_id: UUID, *, invoker: Invoker, stop: Stop, put: Put) -> None:
        self._store = store
        self._lease_id = lease_id
        self._invoker = invoker
        self._stop = stop
        self._put = put

    async def run(self, handler: Handler, rows: Sequence[Row]) -> Ended:
        """One transaction for all; where it fails as a whole, one for each row."""
        known: dict[Any, Verdict] = {}
        try:
            if handler.batch:
                return await self._whole(handler, rows, known)
            return await self._one_by_one(handler, rows, known)
        except _NotBegun as error:
            return Ended(error=error.cause)
        except Exception as error:  # noqa: BLE001 - of the connection, of the commit, of a handler that had to be cut off
            if len(rows) == 1:
                return Ended(failed=[(rows[0], known.get(rows[0].id) or failed(describe(error)))])
            _log.warning("transaction failed; its rows are redone one by one", rows=len(rows), error=error)
        ended = Ended()
        for row in rows:
            if self._stop.stopping or ended.error is not None:
                break
            if ended.over(row):
                continue
            if row.id in known:
                ended.failed.append((row, known[row.id]))
            else:
                ended.add(await self.run(handler, [row]))
        return ended

    async def _one_by_one(self, handler: Handler, rows: Sequence[Row], known: dict[Any, Verdict]) -> Ended:
        ended = Ended()
        async with self._transaction(rows, whole=False) as work:
            ended.fenced += [row for row in rows if row.id in work.fenced]
            bound = _bound(handler, work)
            for row in rows:
                if self._stop.stopping:
                    break
                if row.id in work.fenced or ended.over(row):
                    continue
                try:
                    async with work.savepoint():
                        await self._call(bound, row, work, known)
                except Undone as undone:
                    ended.failed.append((row, undone.verdict))
                else:
                    work.done(row.id)
                    ended.done.append(row)
        return ended

    async def _whole(self, handler: Handler, rows: Sequence[Row], known: dict[Any, Verdict]) -> Ended:
        ended = Ended()
        held: list[Row] = []
        whole = all(row.ordering_key is None for row in rows)
        try:
            async with self._transaction(rows, whole=whole) as work:
                ended.fenced += [row for row in rows if row.id in work.fenced]
                held += [row for row in rows if row.id in work.held]
                if held:
                    await self._call(_bound(handler, work), held, work, known)
                    if not whole:
                        work.done(*(row.id for row in held))
        except Undone as undone:
            ended.failed += [(row, undone.verdict) for row in held]
        else:
            ended.done += held
        return ended

    def _transaction(self, rows: Sequence[Row], *, whole: bool) -> "_Begin":
        return _Begin(self._store.transaction(self._lease_id, [row.id for row in rows], whole=whole))

    async def _call(self, handler: Handler, argument: Any, work: RowTransaction, known: dict[Any, Verdict]) -> None:
        """Run the handler in a task that can be cancelled by itself. Raises Undone."""
        got: list[Verdict] = []

        def put(job: tuple[Handler, Any], verdict: Verdict, seconds: float) -> None:
            got.append(verdict)
            self._put(job, verdict, seconds)

        await self._invoker.work([(handler, argument)], put)
        [verdict] = got
        if verdict.late:
            # It may still run, and must not write into what we commit. Its rows need no second time-out.
            known.update((row.id, verdict) for row in rows_in((handler, argument)))
            await work.abandon()
        if verdict.fate is not Fate.DONE:
            raise Undone(verdict)


class _NotBegun(Exception):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Begin:
    """The store's transaction; a beginning that fails is told apart from a transaction that does."""

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    async def __aenter__(self) -> RowTransaction:
        try:
            work: RowTransaction = await self._transaction.__aenter__()
        except StoreUnavailable as error:
            raise _NotBegun(error) from None
        return work

    async def __aexit__(self, *error: Any) -> Any:
        return await self._transaction.__aexit__(*error)


def _bound(handler: Handler, work: RowTransaction) -> Handler:
    """The handler, called with the transaction's connection too."""
    call, connection = handler.call, work.connection
    return replace(handler, call=lambda argument: call(argument, connection))
