"""``tickkeeper outbox list``, ``cancel``, ``pause``, ``resume`` and ``paused``."""

import dataclasses
import time
from typing import Annotated, Literal

import typer

from tickkeeper.cli._config import refuse
from tickkeeper.cli.outbox_common import (
    AsJson,
    Ids,
    Kind,
    Schema,
    Tenant,
    ask,
    dsn,
    exact,
    fail,
    print_json,
    print_table,
    run,
    some,
)
from tickkeeper.outbox.listing import Filter, Listed, Page, page
from tickkeeper.outbox.looking import OutboxLooks
from tickkeeper.outbox.queries import DEFAULT_SCHEMA

#: Seconds that looking for the rows of one listing may take in all; each page is bounded by itself.
_PATIENCE = 20.0

State = Annotated[
    Literal["ready", "leased", "scheduled", "behind", "dead"] | None,
    typer.Option(help="In this state only; without it all living rows."),
]


def list_rows(
    tenant: Tenant = None,
    kind: Kind = None,
    state: State = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where an earlier list ended, with the same options.")
    ] = None,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """List rows without their payloads, by tenant, kind and due time; dead ones by id."""
    wanted = Filter(tenant, kind, state)

    async def listed() -> Page:
        async with OutboxLooks(dsn(), schema=schema, connect_timeout=5) as looks:
            return await _filled(looks, wanted, limit, after)

    found = run(listed)
    if as_json:
        print_json({"rows": [dataclasses.asdict(row) for row in found.rows], "after": found.cursor})
        return
    print_table(
        ("ID", "TENANT", "KIND", "STATE", "ATTEMPTS", "DUE", "DEDUP_KEY", "ORDERING_KEY", "ERROR"),
        [
            (
                row.id,
                row.tenant_id,
                row.kind,
                row.state + (" (suspect)" if row.suspect else ""),
                f"{row.attempts}/{row.max_attempts}",
                row.due.isoformat(timespec="seconds") if row.due else "",
                row.dedup_key or "",
                row.ordering_key or "",
                row.error or "",
            )
            for row in found.rows
        ],
    )
    if found.cursor:
        typer.echo(f"tickkeeper: there is more: --after {found.cursor}", err=True)


async def _filled(looks: OutboxLooks, wanted: Filter, limit: int, after: str | None) -> Page:
    """Pages until there are rows enough, no more, or no time: then the cursor says where to go on."""
    rows: list[Listed] = []
    deadline = time.monotonic() + _PATIENCE
    while True:
        found = await page(looks, wanted, limit=limit - len(rows), cursor=after)
        rows += found.rows
        after = found.cursor
        if after is None or len(rows) >= limit or time.monotonic() > deadline:
            return Page(tuple(rows), after)


def cancel(
    tenant: Annotated[str, typer.Option(help="The rows' tenant.", callback=exact)],
    ids: Ids = None,
    dedup_key: Annotated[str | None, typer.Option(help="The row with this key, instead of ids.")] = None,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Take rows that wait out of the outbox, undelivered. Those that a worker has stay."""
    if bool(ids) == (dedup_key is not None):
        refuse(["say which rows to cancel: ids, or --dedup-key"])
    done = ask(schema, lambda store: store.cancel(tenant, ids=ids or None, dedup_key=dedup_key))
    if as_json:
        print_json(dataclasses.asdict(done))
    else:
        typer.echo(f"cancelled {done.cancelled}")
    faults = []
    if done.held:
        faults.append(f"{done.held} stay, a worker has them: id {some(done.held_ids)}")
    if done.absent_ids:
        faults.append(f"no row of tenant {tenant} waits with id {some(done.absent_ids)}")
    if not (ids or done.cancelled or done.held):
        faults.append(f"no row of tenant {tenant} waits with dedup_key {dedup_key}")
    if faults:
        fail("; ".join(faults))


def pause(
    tenant: Annotated[str | None, typer.Option(help="This tenant.", callback=exact)] = None,
    kind: Annotated[
        str | None, typer.Option(help="This kind; of all tenants unless one is named.", callback=exact)
    ] = None,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Claim no more rows of a tenant, a kind, or a kind of a tenant. Producers go on; workers finish what they have."""
    _named(tenant, kind, "pause")
    ask(schema, lambda store: store.pause(tenant_id=tenant, kind=kind))
    if as_json:
        print_json({"tenant_id": tenant, "kind": kind, "paused": True})
    else:
        typer.echo(f"paused {_what(tenant, kind)}")


def resume(
    tenant: Annotated[str | None, typer.Option(help="This tenant.")] = None,
    kind: Annotated[str | None, typer.Option(help="This kind; of all tenants unless one is named.")] = None,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """End a pause, named as it was when it was made."""
    _named(tenant, kind, "resume")
    ended = ask(schema, lambda store: store.resume(tenant_id=tenant, kind=kind))
    if as_json:
        print_json({"tenant_id": tenant, "kind": kind, "resumed": ended})
    elif ended:
        typer.echo(f"resumed {_what(tenant, kind)}")
    if not ended:
        fail(f"{_what(tenant, kind)} was not paused: `tickkeeper outbox paused` lists what is")


def paused(schema: Schema = DEFAULT_SCHEMA, as_json: AsJson = False) -> None:
    """List all pauses, oldest first."""
    pauses = ask(schema, lambda store: store.paused())
    if as_json:
        print_json([dataclasses.asdict(each) for each in pauses])
        return
    print_table(
        ("TENANT", "KIND", "SINCE"),
        [(each.tenant_id or "*", each.kind or "*", each.since.isoformat(timespec="seconds")) for each in pauses],
    )


def _named(tenant: str | None, kind: str | None, verb: str) -> None:
    if tenant is None and kind is None:
        refuse([f"say what to {verb}: --tenant, --kind or both"])


def _what(tenant: str | None, kind: str | None) -> str:
    return " ".join(f"{name} {value}" for name, value in (("tenant", tenant), ("kind", kind)) if value is not None)
