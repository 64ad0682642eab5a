"""``tickkeeper outbox doctor`` against real databases."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from embedded.postgres import Postgres
from tests.integration.outbox.pooler import Pooler
from tests.integration.outbox.releases import migrate_to
from tickkeeper.cli.outbox import outbox
from tickkeeper.outbox import NewRow, enqueue_many_sync, enqueue_sync
from tickkeeper.outbox.doctor import Limits, Schedules, diagnose, gather
from tickkeeper.outbox.version import migrations

if TYPE_CHECKING:
    import redis as redis_py


def run(dsn: str, *arguments: str, redis: str = "") -> Result:
    environment = {"TICKKEEPER_DATABASE_URL": dsn, "TICKKEEPER_REDIS_URL": redis}
    return CliRunner().invoke(outbox, ["doctor", *arguments], env=environment)


def faults(dsn: str, *arguments: str, redis: str = "") -> dict[str, dict[str, Any]]:
    """The faults by check, of a run whose exit code says whether there are any."""
    done = run(dsn, *arguments, "--json", redis=redis)
    told = json.loads(done.stdout)
    found = {each["check"]: each for each in told["findings"] if each["level"] == "fault"}
    assert (done.exit_code, told["healthy"]) == ((1, False) if found else (0, True))
    assert all(each["remedy"] for each in found.values())
    return found


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement.encode())


def test_a_sound_outbox(dsn: str) -> None:
    done = run(dsn)
    assert done.exit_code == 0
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert {line[0] for line in lines} == {"ok", "skipped"}
    assert ["ok", "schema", f"version {len(migrations())}, no migration is pending"] in lines
    assert ["ok", "indexes", "16, all valid"] in lines
    assert lines[-1][1:] == ["schedules", "TICKKEEPER_REDIS_URL is not set, so nobody was asked for schedules"]


def test_no_schema_and_an_old_one(database: str) -> None:
    assert faults(database)["schema"]["remedy"] == "run `tickkeeper outbox migrate`"
    migrate_to(database, 1)
    found = faults(database)
    assert list(found) == ["schema"]
    assert f"pending: {', '.join(each.name for each in migrations()[1:])}" in found["schema"]["message"]


def test_a_database_that_does_not_answer() -> None:
    done = run("postgresql://user:verysecret@127.0.0.1:1/x", "--json")
    (found,) = json.loads(done.stdout)["findings"]
    assert done.exit_code == 1
    assert found["message"].startswith("the database cannot be reached: ")
    assert "verysecret" not in done.output
    assert run("").exit_code == 2
    assert run("postgresql://x", "--late", "soon").exit_code == 2


def test_what_somebody_did_to_the_tables(dsn: str) -> None:
    execute(
        dsn,
        "CREATE INDEX mine ON tickkeeper.outbox (lease_until)",
        "DROP INDEX tickkeeper.outbox_run",
        "ALTER TABLE tickkeeper.outbox DISABLE TRIGGER outbox_next",
        "ALTER TABLE tickkeeper.outbox_dead SET (autovacuum_enabled = off)",
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'tickkeeper.outbox_dead_age'::regclass",
    )
    told = json.loads(run(dsn, "--json").stdout)["findings"]
    found = [(each["check"], each["message"]) for each in told if each["level"] == "fault"]
    assert [check for check, _ in found] == ["indexes", "indexes", "indexes", "triggers", "autovacuum"]
    assert found[0][1].startswith("outbox_dead_age of outbox_dead is not valid")
    assert found[1][1] == "missing: outbox_run"
    assert found[2][1].startswith("mine: holds a column")
    assert "outbox_next" in found[3][1]
    assert found[4][1] == "it is off for outbox_dead"


@pytest.mark.parametrize("role", ["producer", "worker", "reader"])
def test_the_remedies_for_lacking_grants_suffice(role: str, dsn: str, postgres_server: Postgres) -> None:
    execute(dsn, "CREATE ROLE doctored LOGIN PASSWORD 'verysecret'")
    own = f"postgresql://doctored:verysecret@127.0.0.1:{postgres_server.port}/{dsn.rpartition('/')[2]}"
    try:
        done = run(own, "--role", role, "--json")
        remedies = [each["remedy"] for each in json.loads(done.stdout)["findings"] if each["check"] == "grants"]
        assert remedies
        if role == "producer":  # the only right of a producer lets it not see whether it needs a migration
            execute(dsn, *remedies)
            told = json.loads(run(own, "--role", role, "--json").stdout)["findings"]
            assert [each["level"] for each in told if each["check"] == "grants"] == ["ok"]
            with psycopg.connect(own) as producer:
                assert enqueue_sync(producer, "acme", "mail", 1).outcome == "inserted"
            return
        execute(dsn, *remedies)
        assert faults(own, "--role", role) == {}
        granted = "INSERT" in str(remedies)
        assert granted == (role == "worker")
    finally:
        execute(dsn, "DROP OWNED BY doctored", "DROP ROLE doctored")


def test_settings_of_the_role(dsn: str) -> None:
    name = dsn.rpartition("/")[2]
    execute(
        dsn,
        f"ALTER DATABASE {name} SET default_transaction_read_only = on",
        f"ALTER DATABASE {name} SET session_replication_role = replica",
        f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'",
    )
    done = run(dsn)
    assert done.exit_code == 1
    for text in (
        "default_transaction_read_only is on",
        "triggers do not fire",
        "is serializable: workers set their own",
    ):
        assert text in done.stdout


async def test_c11_a_held_horizon_has_a_name_and_no_query(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, application_name="report") as reader:
        await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await reader.execute("SELECT 'verysecret', count(*) FROM tickkeeper.outbox")
        facts = await gather(dsn)
        findings = diagnose(facts, Schedules(None), Limits(held=0.0))
        (found,) = [each for each in findings if each.check == "horizon" and each.level == "fault"]
        assert found.message.startswith(f"session report (pid {reader.info.backend_pid}) keeps dead rows")
        assert f"pg_terminate_backend({reader.info.backend_pid})" in (found.remedy or "")
        assert "verysecret" not in str(facts) + str(findings)


def test_rows_that_wait(dsn: str, redis_url: str, redis: "redis_py.Redis") -> None:
    with psycopg.connect(dsn, autocommit=True) as producer:
        enqueue_many_sync(producer, [NewRow("acme", "mail", 1), NewRow("forgotten", "mail", 1)])
        redis.zadd("bull:ticks:repeat", {"s": 1})
        redis.hset("bull:ticks:repeat:s", mapping={"data": json.dumps({"tenantId": "acme"})})
        found = faults(dsn, redis=redis_url)
        assert list(found) == ["schedules"]
        assert found["schedules"]["message"].endswith("queues: ticks): forgotten")
        producer.execute("UPDATE tickkeeper.outbox SET available_at = now() - interval '20 min'")
        assert list(faults(dsn)) == ["late"]
        assert faults(dsn, "--late", "1h") == {}
        producer.execute(
            "UPDATE tickkeeper.outbox SET lease_id = gen_random_uuid(), lease_until = now() - interval '10 min'"
        )
        assert list(faults(dsn, "--late", "1h")) == ["leases"]
        producer.execute("DELETE FROM tickkeeper.outbox")
        producer.execute("INSERT INTO tickkeeper.outbox_block VALUES (7, 'acme', 'k')")
        assert faults(dsn)["keys"]["message"].endswith("the first is 7 of tenant acme")


def test_behind_a_pooler(dsn: str, postgres_server: Postgres) -> None:
    with Pooler(postgres_server, size=2) as pooler:
        facts = asyncio.run(gather(pooler.dsn(dsn)))
        assert facts.pooled
        assert facts.sample is not None
        done = run(pooler.dsn(dsn))
        assert done.exit_code == 0
        assert "goes through a pooler" in done.stdout
    assert not asyncio.run(gather(dsn)).pooled
