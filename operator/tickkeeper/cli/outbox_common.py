"""What the commands of ``tickkeeper outbox`` share: the database, their options, and how they print."""

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from tickkeeper.cli._config import refuse
from tickkeeper.outbox.postgres import PostgresOutbox
from tickkeeper.outbox.store import SchemaError, StoreUnavailable

DSN = "TICKKEEPER_DATABASE_URL"
_SCHEMA = "TICKKEEPER_DATABASE_SCHEMA"
#: Seconds for one statement of what changes rows in batches.
PATIENCE = 120.0
_WIDEST = 80
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

T = TypeVar("T")

Schema = Annotated[str, typer.Option(envvar=_SCHEMA, help="The schema of the outbox.", show_envvar=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def exact(option: typer.CallbackParam, value: str | None) -> str | None:
    """A callback of options that name a tenant or a kind: a pattern would choose nothing, and look as if it had."""
    if value is not None and "*" in value:
        name = option.opts[0]
        rule = "an exact kind, patterns are for handlers" if name == "--kind" else "a tenant's exact name"
        refuse([f"{name}={value}: must be {rule}"])
    return value


Tenant = Annotated[str | None, typer.Option(help="Of this tenant only.", callback=exact)]
Kind = Annotated[str | None, typer.Option(help="Of this kind only.", callback=exact)]
Ids = Annotated[list[int] | None, typer.Argument(help="Ids of rows.", show_default=False)]


def dsn() -> str:
    """The database, from the environment."""
    dsn = os.environ.get(DSN, "").strip()
    if not dsn:
        refuse([f"{DSN} is not set"])
    return dsn


def ask(schema: str, question: Callable[[PostgresOutbox], Awaitable[T]], *, seconds: float = PATIENCE) -> T:
    """Put a question to the outbox; ``seconds`` for each statement of it."""

    async def asked() -> T:
        store = PostgresOutbox(dsn(), schema=schema, max_connections=1, call_timeout=seconds)
        async with store:
            return await question(store)

    return run(asked)


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """``attempt`` for a coroutine."""
    return attempt(lambda: asyncio.run(work()))


def attempt(work: Callable[[], T]) -> T:
    """Do it; what is wrong with the database, or an argument, is one line and an exit code."""
    try:
        return work()
    except (StoreUnavailable, SchemaError) as error:
        fail(str(error))
    except ValueError as error:  # of the connection string, the schema's name or an id
        refuse([str(error)])


def fail(message: str) -> NoReturn:
    """Say it on stderr and exit with 1."""
    typer.echo(f"tickkeeper: {message}", err=True)
    raise typer.Exit(1)


def duration(option: str, text: str) -> timedelta:
    """A time such as 30d, given for an option."""
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    if not found:
        refuse([f"{option}={text}: must be a whole number and a unit of s, m, h, d or w, like 30d"])
    try:
        return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    except OverflowError:
        refuse([f"{option}={text}: must be less than three million years"])


def age(seconds: float | None) -> str:
    """Seconds as h:mm:ss."""
    return "" if seconds is None else str(timedelta(seconds=max(0, round(seconds))))


def some(ids: Sequence[object]) -> str:
    """The first twenty."""
    return ", ".join(map(str, ids[:20])) + (", …" if len(ids) > 20 else "")


def plain(text: object) -> str:
    """On one line, and nothing in it that a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in str(text))


def to_json(value: Any) -> str:
    """On one line."""
    return json.dumps(value, ensure_ascii=False, default=_other)


def _other(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_json(value: Any) -> None:
    """For programs."""
    typer.echo(json.dumps(value, indent=2, default=_other))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """For people: columns, long cells cut."""
    lines = [heads, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        typer.echo("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    text = plain(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
