"""The doctor's checks of the rows themselves."""

from collections.abc import Iterator

from tickkeeper.outbox.doctor_finding import Case, Finding, ago, duration, fault, note, ok, skipped


def rows(case: Case) -> Iterator[Finding]:
    """How many there are, and which have waited too long."""
    facts, limits = case.facts, case.limits
    sample = facts.sample
    if sample is None:
        if facts.fits:
            yield skipped("rows", f"not counted: {facts.unasked.get('rows', 'no answer in time')}")
        return
    least = "" if sample.exact else "at least "
    counts = ", ".join(
        f"{least}{count} {state}"
        for state, count in (
            ("ready", sample.ready),
            ("leased", sample.leased),
            ("scheduled", sample.scheduled),
            ("behind", sample.behind),
        )
    )
    yield ok("rows", counts)
    if sample.oldest_due is not None and sample.oldest_due > limits.late:
        yield fault(
            "late",
            f"the earliest due row has been due for {duration(sample.oldest_due)}",
            "see which tenant: `tickkeeper outbox stats`; then its schedule, its pause, and its workers' log; "
            "or no worker has a handler for its kind",
        )
    if sample.oldest_created is not None and sample.oldest_created > limits.late:
        yield note(
            "late",
            f"the oldest row whose time has come was enqueued {ago(sample.oldest_created)}: it may be in retries",
        )
    if sample.expired:
        oldest = sample.oldest_expired or 0.0
        text = (
            f"{least}{sample.expired} rows were left by their worker and nobody claimed them, the first {ago(oldest)}"
        )
        yield (
            fault("leases", text, "see whether workers with handlers of their kinds run, and ticks come")
            if oldest > limits.expired
            else note("leases", text)
        )
    if sample.dead:
        yield note("dead letters", f"{sample.dead}: see `tickkeeper outbox dead`, then replay or purge")


def held_back(case: Case) -> Iterator[Finding]:
    """What somebody, or a dead row, keeps from being delivered."""
    facts = case.facts
    blocked, tenant, row = facts.blocks
    if blocked:
        yield fault(
            "keys",
            f"{blocked} dead rows block the rows behind them, the first is {row} of tenant {tenant}",
            f"`tickkeeper outbox show {row}`, then replay or purge it",
        )
    for pause in facts.pauses:
        what = " ".join(
            f"{name} {value}"
            for name, value in (("tenant", pause.tenant_id), ("kind", pause.kind))
            if value is not None
        )
        yield note("pauses", f"{what}, since {pause.since.isoformat(timespec='seconds')}")


def schedules(case: Case) -> Iterator[Finding]:
    """Tenants that nothing ticks for."""
    facts, schedules = case.facts, case.schedules
    if facts.sample is None or schedules.without is None:
        yield skipped("schedules", schedules.why or "the rows were not counted")
        return
    if not schedules.without:
        least = "" if facts.sample.every_tenant else "the first "
        yield ok(
            "schedules", f"{least}{len(facts.sample.tenants)} tenants with rows have a schedule ({schedules.where})"
        )
        return
    names = sorted(schedules.without)
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    yield fault(
        "schedules",
        f"tenants that have rows and no schedule ({schedules.where}): {shown}",
        "create a TickSchedule for each, or name its queue, prefix or Redis if it has one elsewhere",
    )
