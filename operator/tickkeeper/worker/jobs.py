"""What of a claimed batch may run now: which rows go to which handler, together or one by one, and in which order."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

from tickkeeper.outbox.store import Row
from tickkeeper.worker.gates import Gate
from tickkeeper.worker.handlers import Handler
from tickkeeper.worker.invoke import Job
from tickkeeper.worker.outcome import Fate, Verdict

_kind, _ordering_key, _attempts = attrgetter("kind"), attrgetter("ordering_key"), attrgetter("attempts")


class Line:
    """Jobs that wait for the same seats, to be taken from the left; more may be put in front meanwhile.

    ``gate``: the bound of the handler whose line this is; ``transactional``: its jobs are lists of rows to be worked in
    a transaction. The line of all other handlers has neither.
    """

    def __init__(self, gate: Gate | None, *, transactional: bool) -> None:
        self.gate = gate
        self.transactional = transactional
        self.waiting: deque[Job] = deque()


class Jobs:
    """One batch as jobs.

    Rows of one ``ordering_key`` follow each other: the next is there to be taken once its predecessor is done, and
    never when that failed. A batch handler gets its rows as one list; those that failed before come alone, so that one
    bad row cannot use up the attempts of its neighbours. A transactional handler gets all of its rows at once.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        handler_of: Callable[[str], Handler],
        gate_of: Callable[[Handler], Gate | None],
    ) -> None:
        self._gate_of = gate_of
        self._lines: dict[int, Line] = {}
        self._line_of: dict[str, Line] = {}
        self._handler_of: dict[str, Handler] = {kind: handler_of(kind) for kind in set(map(_kind, rows))}
        self._behind: dict[Any, deque[Row]] = {}
        self._lost: set[Any] = set()
        if set(map(_ordering_key, rows)) == {None} and len(self._handler_of) == 1 and self._alike(rows):
            return
        together: dict[int, list[Row]] = defaultdict(list)
        for row in self._heads(rows, together):
            self._line(row.kind).waiting.append(self._job(row))
        for group in together.values():
            self._line(group[0].kind).waiting.append((self._handler_of[group[0].kind], group))

    def lines(self) -> list[Line]:
        """What waits: a line for each handler that has a gate or is transactional, one for all others."""
        return list(self._lines.values())

    def judged(self, row: Row, verdict: Verdict) -> Sequence[Row]:
        """A row is over; returns those behind it in its run that are over with it.

        Whoever reports a row that is done takes the next of its run, so that this needs no seat of its own.
        """
        if row.ordering_key is None or not (behind := self._behind.get(row.ordering_key)):
            return ()
        if verdict.fate is Fate.DONE and row.ordering_key not in self._lost:
            follower = behind.popleft()
            self._line(follower.kind).waiting.appendleft(self._job(follower))
            return ()
        del self._behind[row.ordering_key]
        return behind

    def lose(self, row: Row) -> None:
        """A row was no longer ours: its key is with somebody else, and the rows behind it are not to be begun."""
        if row.ordering_key is not None:
            self._lost.add(row.ordering_key)

    def lost(self, row: Row) -> bool:
        """Whether a row's key is known to be with somebody else."""
        return row.ordering_key in self._lost

    def _alike(self, rows: Sequence[Row]) -> bool:
        """Line up rows of one kind without keys, as most batches are, at a fifth of the cost. False: of two sorts."""
        [(kind, handler)] = self._handler_of.items()
        waiting = self._line(kind).waiting
        if not (handler.batch or handler.transaction):
            waiting.extend(zip(repeat(handler), rows))
        elif handler.batch and set(map(_attempts, rows)) != {1}:
            return False
        else:
            waiting.append((handler, list(rows)))
        return True

    def _job(self, row: Row) -> Job:
        handler = self._handler_of[row.kind]
        return handler, [row] if handler.batch or handler.transaction else row

    def _heads(self, rows: Sequence[Row], together: dict[int, list[Row]]) -> Iterator[Row]:
        """Rows that may run by themselves at once, in their order; those that run as one go to ``together``."""
        runs: dict[str, list[Row]] = {}
        for row in rows:
            if row.ordering_key is not None:
                runs.setdefault(row.ordering_key, []).append(row)
            elif self._groupable(row):
                together[id(self._handler_of[row.kind])].append(row)
            else:
                yield row
        for key, run in runs.items():
            handlers = {id(self._handler_of[row.kind]) for row in run}
            if len(handlers) == 1 and all(map(self._groupable, run)):
                together[handlers.pop()].extend(run)
                continue
            self._behind[key] = deque(run[1:])
            yield run[0]

    def _groupable(self, row: Row) -> bool:
        handler = self._handler_of[row.kind]
        return row.attempts == 1 if handler.batch else handler.transaction

    def _line(self, kind: str) -> Line:
        line = self._line_of.get(kind)
        if line is None:
            handler = self._handler_of[kind]
            gate = self._gate_of(handler)
            own = id(handler) if gate is not None or handler.transaction else 0
            line = self._lines.setdefault(own, Line(gate, transactional=handler.transaction))
            self._line_of[kind] = line
        return line


def rows_in(job: Job) -> Sequence[Row]:
    """The rows of one job."""
    argument = job[1]
    return argument if isinstance(argument, list) else (argument,)
