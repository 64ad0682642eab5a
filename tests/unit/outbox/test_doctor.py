"""What the doctor says of given facts."""

from dataclasses import replace
from typing import Any

import pytest

from tickkeeper.outbox.doctor import CHECKS, Facts, Finding, Limits, Schedules, diagnose
from tickkeeper.outbox.doctor_facts import Grant, Index, Server, Table
from tickkeeper.outbox.sampler import Holder, Sample
from tickkeeper.outbox.version import code_version, migrations

SERVER = Server(
    version_number=160_004,
    version="16.4",
    encoding="UTF8",
    in_recovery=False,
    user="app",
    backend_pid=1,
    isolation="read committed",
    read_only=False,
    replication_role="origin",
    autovacuum=True,
    track_counts=True,
    statement_timeout=0.0,
    lock_timeout=0.0,
)
INDEXES = tuple(
    Index(name, "outbox", True, ("tenant_id",))
    for name in (
        *("outbox_due", "outbox_dedup", "outbox_run", "outbox_head", "outbox_dead_age", "outbox_dead_tenant"),
        *("outbox_key_check_key", "outbox_block_key", "outbox_dead_dedup"),
    )
)
TABLES = (Table("outbox", ("fillfactor=50",), live=100, dead=5, updates=20_000, hot_updates=18_000, vacuumed=3.0),)
GRANTS = (
    Grant("SCHEMA", "tickkeeper", "USAGE", True),
    *(
        Grant("TABLE", table, privilege, table != "schema_version" or privilege == "SELECT")
        for table in ("outbox", "outbox_dead", "schema_version")
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE")
    ),
    Grant("FUNCTION", "enqueue", "EXECUTE", False),
    Grant("FUNCTION", "outbox_mend", "EXECUTE", True),
    Grant("FUNCTION", "outbox_next", "EXECUTE", False),
)
SOUND = Facts(
    schema="tickkeeper",
    server=SERVER,
    pooled=False,
    options=(),
    schema_exists=True,
    version=(code_version(), 1),
    indexes=INDEXES,
    triggers=(("outbox_dead_gone", True), ("outbox_next", True)),
    tables=TABLES,
    grants=GRANTS,
    sample=Sample(tenants=("acme",)),
)
ALL_TICK = Schedules((), where="here")


def said(facts: Facts, level: str = "fault", *, schedules: Schedules = ALL_TICK, **limits: Any) -> list[str]:
    return [each.check for each in diagnose(facts, schedules, Limits(**limits)) if each.level == level]


def the(facts: Facts, check: str, *, schedules: Schedules = ALL_TICK, **limits: Any) -> Finding:
    (found,) = [
        each
        for each in diagnose(facts, schedules, Limits(**limits))
        if each.check == check and each.level in ("fault", "note", "skipped")
    ]
    return found


def test_a_sound_database() -> None:
    findings = diagnose(SOUND, ALL_TICK)
    assert {each.level for each in findings} == {"ok"}
    assert len(findings) >= len(CHECKS)


@pytest.mark.parametrize(
    ("change", "check", "message", "remedy"),
    [
        ({"version_number": 130_001, "version": "13.1"}, "server", "13.1: must be 14 or later", "upgrade"),
        ({"encoding": "LATIN1"}, "server", "encoding is LATIN1: must be UTF8", "UTF8"),
        ({"in_recovery": True, "read_only": True}, "server", "standby", "primary"),
        ({"read_only": True}, "session", "default_transaction_read_only is on", 'ALTER ROLE "app" SET'),
        ({"replication_role": "replica"}, "session", "triggers do not fire", 'ALTER ROLE "app" RESET'),
        ({"autovacuum": False}, "autovacuum", "off on this server", "autovacuum = on"),
    ],
)
def test_faults_of_the_server(change: dict[str, Any], check: str, message: str, remedy: str) -> None:
    facts = replace(SOUND, server=replace(SERVER, **change))
    assert said(facts) == [check]
    found = the(facts, check)
    assert message in found.message
    assert remedy in (found.remedy or "")


def test_c1_another_isolation_is_worth_knowing_and_no_fault() -> None:
    facts = replace(SOUND, server=replace(SERVER, isolation="serializable", statement_timeout=0.05))
    assert said(facts) == []
    assert said(facts, "note") == ["session", "session"]


def test_the_schema() -> None:
    absent = replace(SOUND, version=None, sample=None)
    assert "run `tickkeeper outbox migrate`" in (the(absent, "schema").remedy or "")
    assert the(absent, "schema").message == 'the outbox schema "tickkeeper" is missing from the database'
    old = replace(SOUND, version=(1, None), sample=None)
    assert "run `" not in the(old, "schema").message
    assert ", ".join(each.name for each in migrations()[1:]) in the(old, "schema").message
    new = replace(SOUND, version=(99, 99), sample=None)
    assert the(new, "schema").remedy == "install the newer release"
    served = replace(SOUND, version=(99, 1))
    assert the(served, "schema").level == "note"
    apart = replace(SOUND, schema="apart", version=None, sample=None)
    assert the(apart, "schema").remedy == "run `tickkeeper outbox migrate --schema apart`"


def test_indexes_and_triggers() -> None:
    broken = replace(SOUND, indexes=(replace(INDEXES[0], usable=False), *INDEXES[1:]))
    assert 'DROP INDEX CONCURRENTLY "tickkeeper"."outbox_due"' in (the(broken, "indexes").remedy or "")
    assert the(replace(SOUND, indexes=INDEXES[1:]), "indexes").message == "missing: outbox_due"
    for columns, predicate in ((("lease_until",), None), (("id",), "(lease_id IS NULL)")):
        hot = replace(SOUND, indexes=(*INDEXES, Index("mine", "outbox", True, columns, predicate)))
        assert the(hot, "indexes").message.startswith("mine: holds a column that every claim changes")
    harmless = replace(SOUND, indexes=(*INDEXES, Index("mine", "outbox", True, ("created_at",))))
    assert said(harmless) == []
    for triggers in ((("outbox_dead_gone", True),), (("outbox_dead_gone", True), ("outbox_next", False))):
        assert "outbox_next" in the(replace(SOUND, triggers=triggers), "triggers").message
    older = replace(SOUND, version=(1, None), sample=None, indexes=INDEXES[:2] + INDEXES[4:6], triggers=())
    assert said(older) == ["schema"]  # what later migrations make is not missed


def test_upkeep() -> None:
    table = TABLES[0]
    off = replace(SOUND, tables=(replace(table, options=("fillfactor=50", "autovacuum_enabled=off")),))
    assert "RESET (autovacuum_enabled)" in (the(off, "autovacuum").remedy or "")
    assert said(replace(SOUND, tables=(replace(table, dead=1_000_001),))) == ["autovacuum"]
    assert said(replace(SOUND, tables=(replace(table, dead=1_000_001, live=2_000_000),))) == []
    cold = replace(SOUND, tables=(replace(table, hot_updates=2_000),))
    assert the(cold, "hot").message == "10% of 20000 updates were HOT"
    assert said(replace(SOUND, tables=(replace(table, updates=9_999, hot_updates=0),))) == []


def test_c11_who_holds_the_horizon_is_named() -> None:
    holders = (
        Holder("session", 7, "report", 12, 400.0),
        Holder("session", 8, "short", 1, 2.0),
        Holder("session", 9, "unseen", 2_000_000, None),
        Holder("prepared transaction", None, "x1", 5, 90_000.0),
        Holder("replication slot", None, "replica", 3_000_000, None),
    )
    facts = replace(SOUND, sample=Sample(holders=holders))
    found = [each for each in diagnose(facts, ALL_TICK) if each.check == "horizon"]
    assert [each.level for each in found] == ["fault"] * 4
    assert found[0].message == "session report (pid 7) keeps dead rows from being cleaned up for 7 min, 12 transactions"
    assert "pg_terminate_backend(7)" in (found[0].remedy or "")
    assert "since a time that this role may not see" in found[1].message
    assert "ROLLBACK PREPARED 'x1'" in (found[2].remedy or "")


def test_a_pooler() -> None:
    assert said(replace(SOUND, pooled=True)) == []
    assert said(replace(SOUND, options=("options",))) == []
    assert said(replace(SOUND, pooled=True, options=("options",))) == ["connection"]
    assert said(replace(SOUND, options=("target_session_attrs",))) == ["connection"]


@pytest.mark.parametrize(
    ("role", "lacking"),
    [
        ("worker", []),
        ("reader", []),
        ("producer", ['GRANT EXECUTE ON FUNCTION "tickkeeper"."enqueue" TO "app"']),
    ],
)
def test_grants_by_role(role: str, lacking: list[str]) -> None:
    found = [each.remedy for each in diagnose(SOUND, ALL_TICK, Limits(role=role)) if each.level == "fault"]  # type: ignore[arg-type]
    assert found == lacking


def test_a_worker_without_a_grant() -> None:
    facts = replace(SOUND, grants=tuple(replace(grant, given=False) for grant in GRANTS))
    remedies = [each.remedy for each in diagnose(facts, ALL_TICK) if each.check == "grants"]
    assert len(remedies) == 1 + 4 + 4 + 1 + 1
    assert 'GRANT USAGE ON SCHEMA "tickkeeper" TO "app"' in remedies
    assert 'GRANT UPDATE ON TABLE "tickkeeper"."outbox" TO "app"' in remedies
    assert 'GRANT EXECUTE ON FUNCTION "tickkeeper"."outbox_mend" TO "app"' in remedies


def test_rows() -> None:
    assert said(replace(SOUND, sample=Sample(oldest_due=901.0))) == ["late"]
    remedy = the(replace(SOUND, sample=Sample(oldest_due=901.0)), "late").remedy
    assert "no worker has a handler for its kind" in (remedy or "")
    assert said(replace(SOUND, sample=Sample(oldest_due=901.0)), late=1000.0) == []
    assert said(replace(SOUND, sample=Sample(oldest_created=901.0)), "note") == ["late"]
    assert said(replace(SOUND, sample=Sample(expired=3, oldest_expired=301.0))) == ["leases"]
    assert said(replace(SOUND, sample=Sample(expired=3, oldest_expired=1.0)), "note") == ["leases"]
    assert said(replace(SOUND, sample=Sample(dead=3)), "note") == ["dead letters"]
    assert said(replace(SOUND, blocks=(2, "acme", 7))) == ["keys"]
    late = replace(SOUND, sample=None, unasked={"rows": "canceling statement"})
    assert "canceling statement" in the(late, "rows").message
    least = [each.message for each in diagnose(replace(SOUND, sample=Sample(exact=False, ready=10_000)), ALL_TICK)]
    assert any(message.startswith("at least 10000 ready") for message in least)


def test_tenants_without_a_schedule() -> None:
    names = [f"t{number:02}" for number in range(23)]
    found = the(SOUND, "schedules", schedules=Schedules(names, where="there"))
    assert found.level == "fault"
    assert found.message.endswith("t18, t19 and 3 more")
    assert said(SOUND, "skipped", schedules=Schedules(None, "nobody was asked")) == ["schedules"]
    assert the(SOUND, "schedules", schedules=Schedules(None, "nobody was asked")).message == "nobody was asked"
