"""``tickkeeper outbox``: migrate its schema, look into it, and mend it."""

import dataclasses
from datetime import timedelta
from typing import Annotated

import typer

from tickkeeper.cli import outbox_doctor, outbox_rows, outbox_stats
from tickkeeper.cli._config import refuse
from tickkeeper.cli.outbox_common import (
    DSN,
    AsJson,
    Ids,
    Kind,
    Schema,
    Tenant,
    ask,
    attempt,
    dsn,
    duration,
    fail,
    plain,
    print_json,
    print_table,
    some,
    to_json,
)
from tickkeeper.cli.outbox_named import Named
from tickkeeper.outbox.migrate import migrate_sync
from tickkeeper.outbox.postgres import PostgresOutbox
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.store import Replayed

#: Dead letters of one `dead`.
_MOST_LISTED = 10_000

outbox = typer.Typer(
    no_args_is_help=True,
    help=f"Look after the outbox in PostgreSQL. Reads {DSN}: postgresql://user:password@host/database.",
)


@outbox.command()
def migrate(schema: Schema = DEFAULT_SCHEMA, as_json: AsJson = False) -> None:
    """Create the outbox's schema, or bring it to the version that this release needs."""
    done = attempt(lambda: migrate_sync(dsn(), schema=schema))
    if as_json:
        print_json({"schema": schema, **dataclasses.asdict(done)})
    elif done.applied:
        typer.echo(f"schema {schema}: version {done.before} -> {done.after} ({', '.join(done.applied)})")
    else:
        typer.echo(f"schema {schema}: version {done.after}, nothing to do")


outbox.command()(outbox_stats.stats)
outbox.command("list")(outbox_rows.list_rows)


@outbox.command()
def show(
    row_id: Annotated[int, typer.Argument(metavar="ID", help="Id of a row, living or dead.")],
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Show one row with its payload."""
    row = ask(schema, lambda store: store.show(row_id))
    if row is None:
        fail(f"no row has id {row_id}: a row leaves the outbox once it is delivered")
    fields = dataclasses.asdict(row)
    if as_json:
        print_json(fields)
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        if value is not None:
            typer.echo(f"{name:{width}}  {plain(value if isinstance(value, str) else to_json(value))}")


@outbox.command()
def dead(
    tenant: Tenant = None,
    kind: Kind = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST_LISTED, help="At most so many.")] = 50,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """List dead letters, latest death first."""
    found = ask(
        schema,
        lambda store: store.dead_letters.latest(tenant_id=tenant, kind=kind, limit=min(limit + 1, _MOST_LISTED)),
    )
    rows = found[:limit]
    if len(found) > limit or len(found) == _MOST_LISTED:
        told = f"tickkeeper: these are the latest {limit}: all by pages: tickkeeper outbox list --state dead"
        typer.echo(told, err=True)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    print_table(
        ("ID", "TENANT", "KIND", "ORDERING_KEY", "ATTEMPTS", "REASON", "DIED", "ERROR"),
        [
            (
                row.id,
                row.tenant_id,
                row.kind,
                row.ordering_key or "",
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
    """Put dead letters back into the outbox, under their own ids, with their attempts afresh."""
    if every and (ids or tenant or kind):
        refuse(["--all: must be without ids, --tenant and --kind"])
    if not (every or ids or tenant or kind):
        refuse(["say which dead letters to replay: ids, --tenant or --kind, or else --all"])

    async def replay_known(store: PostgresOutbox) -> tuple[Replayed, Named]:
        named = await Named.of(store, ids)
        done = await store.dead_letters.replay(ids=ids or None, tenant_id=tenant, kind=kind)
        return done, await named.after(store, skipped=done.skipped)

    done, named = ask(schema, replay_known)
    skipped = f"skipped {len(done.skipped)}, their dedup_key has a row in the outbox: {some(done.skipped)}"
    if as_json:
        print_json(dataclasses.asdict(done) | named.as_json())
    else:
        typer.echo(f"replayed {done.replayed}")
        if done.skipped and not ids:
            typer.echo(skipped)
    named.judge(*([skipped] if ids and done.skipped else []))


@outbox.command()
def purge(
    ids: Ids = None,
    tenant: Tenant = None,
    kind: Kind = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only those that died longer ago: 90s, 15m, 12h, 30d, 4w.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All dead letters of all tenants, whatever their age.")] = False,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good."""
    age = timedelta() if older_than is None else duration("--older-than", older_than)
    if every and (ids or tenant or kind or age):
        refuse(["--all: must be without ids, --tenant, --kind and --older-than"])
    if not (every or ids or older_than):
        refuse(["say which dead letters to delete: ids, or --older-than (0s: whatever their age), or else --all"])
    if not (every or ids or tenant or kind or age):
        refuse(
            [f"--older-than={older_than}: would delete all dead letters of all tenants; if that is meant, say --all"]
        )

    async def purge_known(store: PostgresOutbox) -> tuple[int, Named]:
        named = await Named.of(store, ids)
        done = await store.dead_letters.purge(older_than=age, ids=ids or None, tenant_id=tenant, kind=kind)
        return done, await named.after(store)

    purged, named = ask(schema, purge_known)
    if as_json:
        print_json({"purged": purged} | named.as_json())
    else:
        typer.echo(f"purged {purged}")
    named.judge()


outbox.command()(outbox_rows.cancel)
outbox.command()(outbox_rows.pause)
outbox.command()(outbox_rows.resume)
outbox.command()(outbox_rows.paused)
outbox.command()(outbox_doctor.doctor)
