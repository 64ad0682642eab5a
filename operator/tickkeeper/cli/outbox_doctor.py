"""``tickkeeper outbox doctor``."""

import asyncio
import dataclasses
from typing import Annotated, Literal

import typer

from tickkeeper.cli.outbox_common import AsJson, Schema, attempt, dsn, duration, plain, print_json
from tickkeeper.cli.outbox_schedules import Prefix, Queue, without_schedule
from tickkeeper.outbox.doctor import Facts, Finding, Limits, diagnose, gather
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.store import StoreUnavailable


def doctor(
    role: Annotated[
        Literal["producer", "worker", "reader"], typer.Option(help="Whose grants the database's role should have.")
    ] = "worker",
    late: Annotated[
        str, typer.Option(metavar="AGE", help="Rows due longer than this are a fault: 90s, 15m, 12h.")
    ] = "15m",
    queue: Queue = None,
    prefix: Prefix = None,
    schema: Schema = DEFAULT_SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Look for what is wrong with the outbox and its database, and say what to do. Exits with 1 if a person is needed.

    Schedules are asked of TICKKEEPER_REDIS_URL, where it is set.
    """
    limits = Limits(role=role, late=duration("--late", late).total_seconds())
    findings = _findings(schema, limits, queue, prefix)
    faults = [finding for finding in findings if finding.level == "fault"]
    if as_json:
        print_json({"healthy": not faults, "findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        _print(findings)
    if faults:
        raise typer.Exit(1)


def _findings(schema: str, limits: Limits, queue: list[str] | None, prefix: str | None) -> list[Finding]:
    address = dsn()

    def asked() -> Facts | StoreUnavailable:
        try:
            return asyncio.run(gather(address, schema=schema))
        except StoreUnavailable as error:
            return error

    facts = attempt(asked)
    if isinstance(facts, StoreUnavailable):
        return [
            Finding("server", "fault", str(facts), "see that the server runs and the address and password are right")
        ]
    tenants = facts.sample.tenants if facts.sample else ()
    return diagnose(facts, without_schedule(tenants, queues=queue, prefix=prefix), limits)


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        typer.echo(f"{finding.level:7}  {finding.check:{width}}  {plain(finding.message)}")
        if finding.remedy:
            typer.echo(f"{'':7}  {'':{width}}  -> {plain(finding.remedy)}")
