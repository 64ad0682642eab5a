"""The doctor's checks of a database: its server, session, schema and upkeep."""

import re
from collections.abc import Iterator

from tickkeeper.outbox.doctor_facts import Grant, Index
from tickkeeper.outbox.doctor_finding import Case, Finding, Role, ago, duration, fault, note, ok, skipped
from tickkeeper.outbox.queries import DEFAULT_SCHEMA
from tickkeeper.outbox.version import migrations, misfit, missing


def server(case: Case) -> Iterator[Finding]:
    """Whether it can hold an outbox, and is one to write to."""
    facts = case.facts
    server = facts.server
    if server.version_number < 140_000:
        yield fault("server", f"PostgreSQL {server.version}: must be 14 or later", "upgrade the server")
    if server.encoding != "UTF8":
        yield fault("server", f"encoding is {server.encoding}: must be UTF8", "make a database with ENCODING 'UTF8'")
    if server.in_recovery:
        yield fault(
            "server", "it is a standby: nothing can be enqueued or claimed here", "connect to the primary server"
        )
    if not server.in_recovery and server.version_number >= 140_000 and server.encoding == "UTF8":
        yield ok("server", f"PostgreSQL {server.version}")


def session(case: Case) -> Iterator[Finding]:
    """What the role's sessions are given."""
    facts = case.facts
    server, alter = facts.server, f'ALTER ROLE "{facts.server.user}"'
    sound = True
    if server.read_only and not server.in_recovery:
        sound = False
        yield fault(
            "session", "default_transaction_read_only is on", f"{alter} SET default_transaction_read_only = off"
        )
    if server.replication_role != "origin":
        sound = False
        yield fault(
            "session",
            f"session_replication_role is {server.replication_role}: triggers do not fire, so ordering keys stop",
            f"{alter} RESET session_replication_role, and look at the database's and the connection's settings",
        )
    if server.isolation != "read committed":
        yield note(
            "session",
            f"default_transaction_isolation is {server.isolation}: workers set their own, producers may have to retry",
        )
    for name, value in (("statement_timeout", server.statement_timeout), ("lock_timeout", server.lock_timeout)):
        if 0 < value < 1:
            yield note("session", f"{name} is {value:g} s: large batches are halved until they pass")
    if sound:
        yield ok("session", f"role {server.user}, {server.isolation}, read and write")


def pooler(case: Case) -> Iterator[Finding]:
    """What does not get along with a pooler or a fail-over."""
    facts = case.facts
    if "target_session_attrs" in facts.options:
        yield fault(
            "connection",
            "target_session_attrs asks for a standby",
            "set target_session_attrs=read-write, or leave it out",
        )
    if "options" in facts.options:
        text = "the connection string has startup options, which a pooler in transaction mode refuses or forgets"
        remedy = "take options out of the connection string, and set them by ALTER ROLE … SET"
        yield fault("connection", text, remedy) if facts.pooled else note("connection", text)
    if facts.pooled:
        yield note("connection", "goes through a pooler; `tickkeeper outbox migrate` needs the server itself")
    elif not facts.options:
        yield ok("connection", "to the server itself")


def schema(case: Case) -> Iterator[Finding]:
    """Its version."""
    facts = case.facts
    migrate = "tickkeeper outbox migrate" + ("" if facts.schema == DEFAULT_SCHEMA else f" --schema {facts.schema}")
    if "schema_version" in facts.unasked:
        yield skipped("schema", f"its version cannot be read: {facts.unasked['schema_version']}")
    elif facts.version is None:
        yield fault("schema", _complaint(missing(facts.schema)), f"run `{migrate}`")
    elif complaint := misfit(facts.schema, *facts.version):
        pending = [each.name for each in migrations() if each.version > facts.version[0]]
        waiting = f"; pending: {', '.join(pending)}" if pending else ""
        yield fault(
            "schema", _complaint(complaint) + waiting, f"run `{migrate}`" if pending else "install the newer release"
        )
    elif not facts.current:
        yield note("schema", f"version {facts.version[0]} is newer than this release, which works with it")
    else:
        yield ok("schema", f"version {facts.version[0]}, no migration is pending")


def _complaint(text: str) -> str:
    """Without the remedy at its end, which is told apart."""
    return text.rpartition(": ")[0]


def indexes(case: Case) -> Iterator[Finding]:
    """Indexes and triggers: there, whole, and no others in the way of HOT updates."""
    facts = case.facts
    if facts.version is None or "doctor_indexes" in facts.unasked:
        return
    there = {index.name: index for index in facts.indexes}
    wanted = _created(r"CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)", facts.version[0])
    broken = [index for index in facts.indexes if not index.usable]
    absent = sorted(wanted - set(there))
    for index in broken:
        yield fault(
            "indexes",
            f"{index.name} of {index.table} is not valid: its building did not end",
            f'DROP INDEX CONCURRENTLY "{facts.schema}"."{index.name}", then build it again'
            + (", as the migration has it" if index.name in wanted else ""),
        )
    if absent:
        yield fault(
            "indexes", f"missing: {', '.join(absent)}", "create them as the migrations in the release have them"
        )
    hot = [index.name for index in facts.indexes if _hinders_hot(index)]
    if hot:
        yield fault(
            "indexes",
            f"{', '.join(hot)}: holds a column that every claim changes, so no claim is a HOT update",
            "drop it: no query of TickKeeper needs it",
        )
    off = sorted(name for name, fires in facts.triggers if not fires)
    off += sorted(_created(r"CREATE TRIGGER (\w+)", facts.version[0]) - {name for name, _ in facts.triggers})
    if off and "doctor_triggers" not in facts.unasked:
        yield fault(
            "triggers",
            f"missing or disabled: {', '.join(off)}; rows behind the first of their ordering_key stay where they are",
            f'ALTER TABLE "{facts.schema}".outbox ENABLE TRIGGER ALL, or create them as the migrations have them',
        )
    if not (broken or absent or hot):
        yield ok("indexes", f"{len(there)}, all valid")


#: A claim, or what settles it, writes these.
_CLAIMED = {"attempts", "lease_id", "lease_until", "suspect", "last_error"}


def _hinders_hot(index: Index) -> bool:
    predicate = set(re.findall(r"\w+", index.predicate or ""))
    return index.table == "outbox" and bool(_CLAIMED & ({*index.columns} | predicate))


def _created(pattern: str, version: int) -> set[str]:
    """Names of what the migrations up to a version have made."""
    return {name for each in migrations() if each.version <= version for name in re.findall(pattern, each.text)}


def vacuum(case: Case) -> Iterator[Finding]:
    """Autovacuum, dead row versions and the share of HOT updates."""
    facts, limits = case.facts, case.limits
    server = facts.server
    if not server.autovacuum or not server.track_counts:
        yield fault("autovacuum", "it is off on this server", "set autovacuum = on and track_counts = on")
    for table in facts.tables:
        options = dict(option.split("=", 1) for option in table.options)
        if options.get("autovacuum_enabled", "true").lower() in ("false", "off", "no", "0"):
            yield fault(
                "autovacuum",
                f"it is off for {table.name}",
                f'ALTER TABLE "{facts.schema}"."{table.name}" RESET (autovacuum_enabled)',
            )
        if table.name == "outbox" and options.get("fillfactor") != "50":
            yield note("autovacuum", "fillfactor of outbox is not 50: fewer claims are HOT updates")
        if table.dead > limits.dead_tuples and table.dead > table.live:
            when = "never vacuumed" if table.vacuumed is None else f"vacuumed {ago(table.vacuumed)}"
            yield fault(
                "autovacuum",
                f"{table.name} has {table.dead} dead row versions beside {table.live} rows, {when}",
                "end whoever holds the horizon (below), then VACUUM; see whether autovacuum keeps up",
            )
        elif table.name == "outbox":
            yield ok("autovacuum", f"{table.name}: {table.dead} dead row versions beside {table.live} rows")
        if table.name == "outbox" and table.updates >= 10_000:
            share = table.hot_updates / table.updates
            told = f"{share:.0%} of {table.updates} updates were HOT"
            if share < limits.hot_share:
                yield fault("hot", told, "look for indexes of your own, a fillfactor other than 50, a held horizon")
            else:
                yield ok("hot", told)


def horizon(case: Case) -> Iterator[Finding]:
    """Who keeps dead rows from being cleaned up."""
    facts, limits = case.facts, case.limits
    if facts.sample is None:
        return
    holding = [
        each
        for each in facts.sample.holders
        if (each.seconds is not None and each.seconds > limits.held) or each.transactions > limits.dead_tuples
    ]
    for each in holding:
        since = "since a time that this role may not see" if each.seconds is None else f"for {duration(each.seconds)}"
        who = f"{each.holder} {each.name}".rstrip() + (f" (pid {each.pid})" if each.pid else "")
        yield fault(
            "horizon",
            f"{who} keeps dead rows from being cleaned up {since}, {each.transactions} transactions",
            {
                "session": f"let it end, or SELECT pg_terminate_backend({each.pid}), "
                "and set idle_in_transaction_session_timeout",
                "prepared transaction": f"COMMIT PREPARED or ROLLBACK PREPARED '{each.name}'",
                "replication slot": "let its consumer catch up, or drop the slot",
            }[each.holder],
        )
    if not holding:
        yield ok("horizon", "no old snapshot is held")


def grants(case: Case) -> Iterator[Finding]:
    """What the role lacks."""
    facts, limits = case.facts, case.limits
    if not facts.grants:
        return
    lacking = [grant for grant in facts.grants if not grant.given and _needed(grant, limits.role)]
    for grant in lacking:
        name = f'"{facts.schema}"' + ("" if grant.on == "SCHEMA" else f'."{grant.name}"')
        yield fault(
            "grants",
            f"role {facts.server.user} lacks {grant.privilege} on {grant.on.lower()} {grant.name}, as a {limits.role}",
            f'GRANT {grant.privilege} ON {grant.on} {name} TO "{facts.server.user}"',
        )
    if not lacking:
        yield ok("grants", f"role {facts.server.user} has what a {limits.role} needs")


def _needed(grant: Grant, role: Role) -> bool:
    if grant.on == "SCHEMA":
        return True
    if grant.on == "FUNCTION":
        return grant.name == {"producer": "enqueue", "worker": "outbox_mend", "reader": ""}[role]
    if grant.privilege == "SELECT":
        return role != "producer"
    return role == "worker" and grant.name != "schema_version"
