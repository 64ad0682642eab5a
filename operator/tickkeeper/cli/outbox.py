"""``tickkeeper outbox``: migrate its schema, look into it, and mend its dead letters."""

import asyncio
import dataclasses
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from tickkeeper.cli._config import refuse
from tickkeeper.outbox.migrate import migrate_sync
from tickkeeper.outbox.postgres import PostgresOutbox
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.store import Replayed, SchemaError, StoreUnavailable

_DSN = "TICKKEEPER_DATABASE_URL"
_SCHEMA = "TICKKEEPER_DATABASE_SCHEMA"
#: Seconds for one statement: counting a large outbox takes longer than a worker would wait.
_PATIENCE = 120.0
_WIDEST = 80
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

T = TypeVar("T")

Schema = Annotated[str, typer.Option(envvar=_SCHEMA, help="The schema of the outbox.", show_envvar=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant only.")]
Kind = Annotated[str | None, typer.Option(help="Of this kind only.")]
Ids = Annotated[list[int] | None, typer.Argument(help="Ids of rows.", show_default=False)]

outbox = typer.Typer(
    no_args_is_help=True,
    help=f"Look after the outbox in PostgreSQL. Reads {_DSN}: postgresql://user:password@host/database.",
)


@outbox.command()
def migrate(schema: Schema = DEFAULT_SCHEMA, as_json: AsJson = False) -> None:
    """Create the outbox's schema, or bring it to the version that this release needs."""
    done = _attempt(lambda: migrate_sync(_dsn(), schema=schema))
    if as_json:
        _print_json({"schema": schema, **dataclasses.asdict(done)})
    elif done.applied:
        typer.echo(f"schema {schema}: version {done.before} -> {done.after} ({', '.join(done.applied)})")
    else:
        typer.echo(f"schema {schema}: version {done.after}, nothing to do")


@outbox.command()
def stats(tenant: Tenant = None, schema: Schema = DEFAULT_SCHEMA, as_json: AsJson = False) -> None:
    """Count rows by tenant, kind and state. Reads the whole table."""
    rows = _ask(schema, lambda store: store.stats(tenant))
    if as_json:
        _print_json([dataclasses.asdict(row) for row in rows])
        return
    _print_table(
        ("TENANT", "KIND", "READY", "LEASED", "SCHEDULED", "DEAD", "OLDEST"),
        [(row.tenant_id, row.kind, row.ready, row.leased, row.scheduled, row.dead, _age(row.oldest)) for row in rows],
    )


@outbox.command()
def show(
    row_id: Annotated[int, typer.Argument(metavar="ID", help="Id of a row, living or dead.")],
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Show one row with its payload."""
    row = _ask(schema, lambda store: store.show(row_id))
    if row is None:
        _fail(f"no row has id {row_id}: a row leaves the outbox once it is delivered")
    fields = dataclasses.asdict(row)
    if as_json:
        _print_json(fields)
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        if value is not None:
            typer.echo(f"{name:{width}}  {_plain(value if isinstance(value, str) else _json(value))}")


@outbox.command()
def dead(
    tenant: Tenant = None,
    kind: Kind = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """List dead letters, latest death first."""
    rows = _ask(schema, lambda store: store.dead_letters.latest(tenant_id=tenant, kind=kind, limit=limit))
    if as_json:
        _print_json([dataclasses.asdict(row) for row in rows])
        return
    _print_table(
        ("ID", "TENANT", "KIND", "ATTEMPTS", "REASON", "DIED", "ERROR"),
        [
            (
                row.id,
                row.tenant_id,
                row.kind,
                f"{row.attempts}/{row.max_attempts}",
                row.reason,
                row.died_at.isoformat(timespec="seconds"),
                row.error or "",
            )
            for row in rows
        ],
    )


@outbox.command()
def replay(
    ids: Ids = None,
    tenant: Tenant = None,
    kind: Kind = None,
    every: Annotated[bool, typer.Option("--all", help="All dead letters of all tenants.")] = False,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Put dead letters back into the outbox, with their own ids and all their attempts."""
    if every == bool(ids or tenant or kind):
        refuse(["say which dead letters to replay: ids, --tenant or --kind, or else --all"])
    unknown: list[int] = []

    async def replay_known(store: PostgresOutbox) -> Replayed:
        for row_id in dict.fromkeys(ids or ()):
            row = await store.show(row_id)
            if row is None or row.state != "dead":
                unknown.append(row_id)
        return await store.dead_letters.replay(ids=ids or None, tenant_id=tenant, kind=kind)

    done = _ask(schema, replay_known)
    if as_json:
        _print_json(dataclasses.asdict(done))
    else:
        typer.echo(f"replayed {done.replayed}")
        if done.skipped:
            typer.echo(f"skipped {len(done.skipped)}, their dedup_key has a row in the outbox: {_some(done.skipped)}")
    if unknown:
        _fail(f"no dead letter has id {_some(unknown)}")


@outbox.command()
def purge(
    ids: Ids = None,
    tenant: Tenant = None,
    kind: Kind = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only those that died longer ago: 90s, 15m, 12h, 30d, 4w.")
    ] = None,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good."""
    if older_than is None and not ids:
        refuse(["say which dead letters to delete: ids, or --older-than (0s: whatever their age)"])
    age = timedelta() if older_than is None else _duration("--older-than", older_than)
    purged = _ask(
        schema,
        lambda store: store.dead_letters.purge(older_than=age, ids=ids or None, tenant_id=tenant, kind=kind),
    )
    if as_json:
        _print_json({"purged": purged})
    else:
        typer.echo(f"purged {purged}")


def _dsn() -> str:
    dsn = os.environ.get(_DSN, "").strip()
    if not dsn:
        refuse([f"{_DSN} is not set"])
    return dsn


def _ask(schema: str, question: Callable[[PostgresOutbox], Awaitable[T]]) -> T:
    """Put a question to the outbox."""

    async def asked() -> T:
        store = PostgresOutbox(_dsn(), schema=schema, max_connections=1, call_timeout=_PATIENCE)
        async with store:
            return await question(store)

    return _attempt(lambda: asyncio.run(asked()))


def _attempt(work: Callable[[], T]) -> T:
    try:
        return work()
    except (StoreUnavailable, SchemaError) as error:
        _fail(str(error))
    except ValueError as error:  # of the connection string, the schema's name or an id
        refuse([str(error)])


def _fail(message: str) -> NoReturn:
    typer.echo(f"tickkeeper: {message}", err=True)
    raise typer.Exit(1)


def _duration(option: str, text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    if not found:
        refuse([f"{option}={text}: must be a whole number and a unit of s, m, h, d or w, like 30d"])
    try:
        return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    except OverflowError:
        refuse([f"{option}={text}: must be less than three million years"])


def _age(seconds: float | None) -> str:
    return "" if seconds is None else str(timedelta(seconds=max(0, round(seconds))))


def _some(ids: Sequence[object]) -> str:
    return ", ".join(map(str, ids[:20])) + (", …" if len(ids) > 20 else "")


def _plain(text: object) -> str:
    """On one line, and nothing in it that a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in str(text))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_other)


def _other(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=_other))


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    lines = [heads, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        typer.echo("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    text = _plain(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
