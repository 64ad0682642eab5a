"""Handlers: who handles rows of which kind, and where they are found."""

import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeVar

#: Seconds that a handler may take for one row unless it says otherwise.
DEFAULT_TIMEOUT = 60.0
ENTRY_POINT_GROUP = "tickkeeper.handlers"
_MARK = "__tickkeeper_handler__"
_MAX_KIND = 128
#: Kinds without a handler that are remembered as told: their names are the producers', and may be without end.
_MOST_MISSED = 1_000

Handle = Callable[..., Any]
F = TypeVar("F", bound=Handle)


class HandlerError(ValueError):
    """A handler cannot be used; the message names it and the rule."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """A set of kinds: exact names, and patterns ``prefix.*`` for every name that starts with ``prefix.``."""

    exact: frozenset[str] = frozenset()
    prefixes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *names: str) -> "Kinds":
        """Read names and patterns. Raises HandlerError for one that is neither."""
        for name in names:
            _check_kind(name)
        return cls(
            frozenset(name for name in names if not name.endswith("*")),
            frozenset(name[:-1] for name in names if name.endswith("*")),
        )

    def __contains__(self, kind: str) -> bool:
        return kind in self.exact or any(kind.startswith(prefix) for prefix in self.prefixes)

    def __and__(self, other: "Kinds") -> "Kinds":
        """What both sets hold."""
        return Kinds(
            frozenset(kind for kind in self.exact | other.exact if kind in self and kind in other),
            frozenset(
                max(one, two, key=len)
                for one in self.prefixes
                for two in other.prefixes
                if one.startswith(two) or two.startswith(one)
            ),
        )

    def __bool__(self) -> bool:
        return bool(self.exact or self.prefixes)

    def __iter__(self) -> Iterator[str]:
        yield from sorted(self.exact)
        yield from sorted(f"{prefix}*" for prefix in self.prefixes)


@dataclass(frozen=True, slots=True)
class Handler:
    """One handler: ``call`` is awaited when ``is_async``, else run in a thread of its own.

    ``timeout`` in seconds; None means the worker's default. ``concurrency``: calls at once in one process; None means
    only the tick's own bound. ``batch``: it is called with a list of rows. ``transaction``: it is called with the
    connection too, in whose transaction the rows leave.
    """

    name: str
    kinds: Kinds
    call: Handle
    is_async: bool
    timeout: float | None = None
    concurrency: int | None = None
    batch: bool = False
    transaction: bool = False


def handler(
    *kinds: str,
    timeout: float | None = None,
    concurrency: int | None = None,
    batch: bool = False,
    transaction: bool = False,
) -> Callable[[F], F]:
    """Mark a function as the handler of ``kinds`` (exact, or ``prefix.*``); it stays callable as it was.

    ``async def`` runs on the event loop and must not block it; ``def`` runs in a thread. It gets the ``Row``.
    ``timeout``: seconds for one call. A thread cannot be stopped: after its time-out it is left alone, its row is
    retried, and both may run at once, so a sync handler needs time-outs of its own.
    ``concurrency``: how many calls may run at once in one process, over all tenants.
    ``batch``: it gets the list of a batch's rows and succeeds or fails whole; rows that failed before come in lists of
    one.
    ``transaction``: an ``async def`` that gets a psycopg connection as well, ``(row, connection)`` or ``(rows,
    connection)``. What it writes there is committed together with the row's leaving the outbox: exactly once. Commit
    and rollback are not its own. Rows of one batch share the transaction, each with a savepoint.
    """
    if kinds and callable(kinds[0]):
        raise HandlerError(f'{_name(kinds[0])}: use @handler("kind"), not a bare @handler')
    if not kinds:
        raise HandlerError('@handler needs at least one kind: @handler("kind")')
    wanted = Kinds.of(*kinds)
    where = f"@handler({kinds[0]!r})"
    if timeout is not None and not timeout > 0:
        raise HandlerError(f"{where}: timeout must be more than 0 seconds, not {timeout!r}")
    if concurrency is not None and not _is_count(concurrency):
        raise HandlerError(f"{where}: concurrency must be a whole number of at least 1, not {concurrency!r}")
    options = {"timeout": timeout, "concurrency": concurrency, "batch": batch, "transaction": transaction}

    def mark(function: F) -> F:
        if transaction and not _is_async(function):
            raise HandlerError(f"{where}: transaction=True needs an async def, since its connection is asynchronous")
        setattr(function, _MARK, (wanted, options))
        return function

    return mark


def as_handler(
    call: Handle,
    kinds: Kinds,
    *,
    timeout: float | None = None,
    concurrency: int | None = None,
    batch: bool = False,
    transaction: bool = False,
    name: str | None = None,
) -> Handler:
    """A handler from any callable."""
    return Handler(name or _name(call), kinds, call, _is_async(call), timeout, concurrency, batch, transaction)


class Registry:
    """Kind to handler: an exact name first, then the longest prefix."""

    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
        self._exact: dict[str, Handler] = {}
        self._prefixes: dict[str, Handler] = {}
        self._missed: set[str] = set()
        for each in handlers:
            self.add(each)

    def add(self, new: Handler) -> None:
        """Raises HandlerError when one of its kinds has a handler already."""
        for names, table, tail in ((new.kinds.exact, self._exact, ""), (new.kinds.prefixes, self._prefixes, "*")):
            for name in names:
                if name in table and table[name].call is not new.call:
                    raise HandlerError(f"kind {name + tail!r} has two handlers: {table[name].name} and {new.name}")
                table[name] = new

    def find(self, kind: str) -> Handler | None:
        """Who handles ``kind``; None when nobody does."""
        if exact := self._exact.get(kind):
            return exact
        fitting = [prefix for prefix in self._prefixes if kind.startswith(prefix)]
        return self._prefixes[max(fitting, key=len)] if fitting else None

    def newly_missed(self, kinds: Iterable[str]) -> list[str]:
        """Of ``kinds`` those that nobody handles, each at the first time that it is asked for; so many and no more."""
        new = sorted({kind for kind in kinds if self.find(kind) is None} - self._missed)
        new = new[: _MOST_MISSED - len(self._missed)]
        self._missed.update(new)
        return new

    @property
    def transactional(self) -> list[str]:
        """The names of the handlers that want the transaction in which their rows leave."""
        found = {each.name for table in (self._exact, self._prefixes) for each in table.values() if each.transaction}
        return sorted(found)

    @property
    def kinds(self) -> Kinds:
        """All kinds that have a handler."""
        return Kinds(frozenset(self._exact), frozenset(self._prefixes))

    def __len__(self) -> int:
        return len({id(each) for table in (self._exact, self._prefixes) for each in table.values()})


def load(modules: Iterable[str], *, entry_point_group: str | None = ENTRY_POINT_GROUP) -> list[Handler]:
    """The marked functions of the named modules and of the installed entry points.

    Raises HandlerError, with the cause, for a module that cannot be imported or holds no handler.
    """
    found: list[Handler] = []
    for path in modules:
        found += handlers_of(_import(path), path)
    for entry in entry_points(group=entry_point_group) if entry_point_group else ():
        where = f"entry point {entry.name} = {entry.value}"
        try:
            target = entry.load()
        except Exception as error:
            raise HandlerError(f"{where}: {_told(error)}") from error
        found += handlers_of(target, where)
    return found


def _import(path: str) -> Any:
    name, _, attribute = path.partition(":")
    try:
        target: Any = importlib.import_module(name)
        for part in attribute.split(".") if attribute else ():
            target = getattr(target, part)
    except Exception as error:
        told = _told(error)
        if name.endswith(".py") or "/" in name:
            told = f"must be a module's name, not a file's, such as {_module_of(name)}"
        raise HandlerError(f"{path}: {told}") from error
    return target


def _module_of(file: str) -> str:
    return (
        ".".join(part for part in file.removesuffix(".py").split("/") if part not in ("", ".", "..")) or "my_handlers"
    )


def _told(error: Exception) -> str:
    if isinstance(error, HandlerError):
        return str(error)
    *_, last = traceback.extract_tb(error.__traceback__)
    # Our own frames say nothing: the module was not found, or is no attribute.
    where = (
        ""
        if last.filename in (__file__, importlib.__file__) or "importlib" in last.filename
        else f" ({last.filename}, line {last.lineno})"
    )
    return f"{type(error).__name__}: {error}{where}"


def handlers_of(target: Any, where: str) -> list[Handler]:
    """The marked functions of a module, or the one that ``target`` is.

    Raises HandlerError: there is none, named by ``where``, or one that cannot be called with what it is given.
    """
    candidates = vars(target).values() if isinstance(target, ModuleType) else [target]
    # One function under two names in a module is one handler.
    marked = {id(each): each for each in candidates if callable(each) and hasattr(each, _MARK)}
    if not marked:
        raise HandlerError(f"{where}: no function marked with @handler")
    found = [as_handler(each, kinds, **options) for each in marked.values() for kinds, options in [vars(each)[_MARK]]]
    for each in found:
        _check_parameters(each)
    return found


def _check_parameters(handler: Handler) -> None:
    given = ("rows" if handler.batch else "row", *(("connection",) if handler.transaction else ()))
    try:
        # What the object itself takes: a decorator around it may give the rest.
        signature = inspect.signature(handler.call, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # of some objects written in C nobody knows
    try:
        signature.bind(*given)
    except TypeError:
        raise HandlerError(
            f"{handler.name} takes {signature}: must take ({', '.join(given)}), "
            + (
                "since it has transaction=True"
                if handler.transaction
                else "and a connection only with transaction=True"
            )
        ) from None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_async(call: Handle) -> bool:
    while isinstance(call, partial):
        call = call.func
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _name(call: Any) -> str:
    return f"{getattr(call, '__module__', '?')}.{getattr(call, '__qualname__', type(call).__qualname__)}"


def _check_kind(name: Any) -> None:
    if not isinstance(name, str):
        raise HandlerError(f"kind {name!r}: must be a string")
    body = name.removesuffix(".*")
    if not name or len(name) > _MAX_KIND:
        raise HandlerError(f"kind {name!r}: must have 1 to {_MAX_KIND} characters")
    if "*" in body or not body:
        raise HandlerError(f"kind {name!r}: '*' is allowed only at the end, after a dot: 'prefix.*'")
