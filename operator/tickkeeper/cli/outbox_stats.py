"""``tickkeeper outbox stats``."""

import dataclasses
from typing import Annotated

import typer

from tickkeeper.cli.outbox_common import (
    AsJson,
    Schema,
    Tenant,
    age,
    ask,
    dsn,
    print_json,
    print_table,
    run,
    some,
)
from tickkeeper.cli.outbox_schedules import Prefix, Queue, without_schedule
from tickkeeper.outbox.doctor import Schedules
from tickkeeper.outbox.postgres import PostgresOutbox
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.sampler import OutboxSampler, Sample
from tickkeeper.outbox.store import KindStats, StoreUnavailable


def stats(
    tenant: Tenant = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only totals, each counted up to 10 000.")] = False,
    seconds: Annotated[
        float, typer.Option("--timeout", min=1, max=3600, help="Seconds that the count may take.")
    ] = 60.0,
    queue: Queue = None,
    prefix: Prefix = None,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Count rows by tenant, kind and state, and say which tenants have no schedule.

    Reads the whole table, or a tenant's part of it; --quick does not. Schedules are asked of TICKKEEPER_REDIS_URL.
    """
    if quick:
        _quick(schema, queue, prefix, as_json=as_json)
        return
    rows = _counted(schema, tenant, seconds)
    schedules = without_schedule(_with_rows(rows), queues=queue, prefix=prefix)
    if as_json:
        print_json([{**dataclasses.asdict(row), "schedule": _has_one(row, schedules)} for row in rows])
        return
    print_table(
        ("TENANT", "KIND", "READY", "LEASED", "SCHEDULED", "BEHIND", "DEAD", "OLDEST", "SCHEDULE"),
        [
            (
                row.tenant_id,
                row.kind,
                row.ready,
                row.leased,
                row.scheduled,
                row.behind,
                row.dead,
                age(row.oldest),
                {True: "yes", False: "none", None: "?"}[_has_one(row, schedules)],
            )
            for row in rows
        ],
    )
    _tell(schedules)


def _counted(schema: str, tenant: str | None, seconds: float) -> list[KindStats]:
    async def counted(store: PostgresOutbox) -> list[KindStats]:
        try:
            return await store.stats(tenant)
        except StoreUnavailable as error:
            if "no answer within" not in str(error):
                raise
            raise StoreUnavailable(
                f"counting took longer than {seconds:g} s: give --tenant, --quick or a longer --timeout"
            ) from None

    return ask(schema, counted, seconds=seconds)


def _with_rows(rows: list[KindStats]) -> list[str]:
    return sorted({row.tenant_id for row in rows if row.ready or row.leased or row.scheduled or row.behind})


def _has_one(row: KindStats, schedules: Schedules) -> bool | None:
    return None if schedules.without is None else row.tenant_id not in schedules.without


def _quick(schema: str, queue: list[str] | None, prefix: str | None, *, as_json: bool) -> None:
    async def sampled() -> Sample:
        async with OutboxSampler(dsn(), schema=schema) as sampler:
            sample = await sampler.sample(alone=False)
            assert sample is not None
            return sample

    sample = run(sampled)
    schedules = without_schedule(sample.tenants, queues=queue, prefix=prefix)
    if as_json:
        fields = dataclasses.asdict(sample)
        del fields["tenants"]
        print_json({**fields, "tenants": len(sample.tenants), "without_schedule": schedules.without})
        return
    least = "" if sample.exact else "at least "
    print_table(
        ("WHAT", "HOW MANY"),
        [
            *((state, f"{least}{getattr(sample, state)}") for state in ("ready", "leased", "scheduled", "behind")),
            ("dead", f"{'at least ' if sample.dead >= 10_000 else ''}{sample.dead}"),
            ("tenants with rows", f"{'' if sample.every_tenant else 'at least '}{len(sample.tenants)}"),
            ("earliest due", age(sample.oldest_due)),
            ("oldest enqueued", age(sample.oldest_created)),
        ],
    )
    _tell(schedules)


def _tell(schedules: Schedules) -> None:
    """What the table does not say, apart from it."""
    if schedules.without is None:
        typer.echo(f"tickkeeper: schedules not looked at: {schedules.why}", err=True)
    elif schedules.without:
        names = some(list(schedules.without))
        typer.echo(f"tickkeeper: no schedule for {names} ({schedules.where})", err=True)
