"""``tickkeeper outbox`` against a real database."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from tickkeeper.cli.outbox import outbox
from tickkeeper.outbox import Failure, NewRow, PostgresOutbox, enqueue_many_sync
from tickkeeper.outbox.version import migrations


def run(dsn: str, *arguments: str) -> Result:
    return CliRunner().invoke(outbox, arguments, env={"TICKKEEPER_DATABASE_URL": dsn})


def ask(dsn: str, *arguments: str) -> Any:
    done = run(dsn, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def letters(dsn: str) -> str:
    """Three dead letters of two tenants, one live row."""
    with psycopg.connect(dsn) as producer:
        rows = [NewRow("acme", "mail", {"n": n}, dedup_key=f"k{n}") for n in range(2)]
        enqueue_many_sync(producer, [*rows, NewRow("other", "sms", "hi", {"h": "v"})])
    return dsn


@pytest.fixture
async def dead(letters: str) -> str:
    async with PostgresOutbox(letters) as store:
        for tenant in ("acme", "other"):
            taken = await store.claim(tenant, kinds=None, limit=9, lease=timedelta(seconds=9))
            failures = [Failure(row.id, "smtp said\n\x1b[31mno", dead=True) for row in taken.rows]
            await store.fail(taken.lease_id, failures)
    with psycopg.connect(letters) as producer:
        enqueue_many_sync(producer, [NewRow("acme", "mail", 9, dedup_key="k0")])
    return letters


def test_migrate(database: str) -> None:
    assert run(database, "migrate").stdout == (
        "schema tickkeeper: version 0 -> 3 (0001_outbox, 0002_ordering_indexes, 0003_ordering)\n"
    )
    assert run(database, "migrate").stdout == "schema tickkeeper: version 3, nothing to do\n"
    told = ask(database, "migrate", "--schema", "apart")
    assert told == {"schema": "apart", "before": 0, "after": 3, "applied": [each.name for each in migrations()]}


def test_stats(dead: str) -> None:
    lines = run(dead, "stats").stdout.splitlines()
    assert lines[0].split() == ["TENANT", "KIND", "READY", "LEASED", "SCHEDULED", "DEAD", "OLDEST"]
    assert [line.split()[:6] for line in lines[1:]] == [
        ["acme", "mail", "1", "0", "0", "2"],
        ["other", "sms", "0", "0", "0", "1"],
    ]
    (row,) = ask(dead, "stats", "--tenant", "other")
    assert (row["tenant_id"], row["dead"], row["oldest"]) == ("other", 1, None)


def test_show(dead: str) -> None:
    shown = run(dead, "show", "3").stdout
    assert "payload       hi" in shown
    assert "\x1b" not in shown
    told = ask(dead, "show", "1")
    assert (told["state"], told["payload"], told["reason"]) == ("dead", {"n": 0}, "rejected")
    absent = run(dead, "show", "999")
    assert (absent.exit_code, absent.stderr) == (
        1,
        "tickkeeper: no row has id 999: a row leaves the outbox once it is delivered\n",
    )


def test_dead(dead: str) -> None:
    lines = run(dead, "dead").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "3", "2", "1"]
    assert lines[1].split()[1:5] == ["other", "sms", "1/20", "rejected"]
    assert lines[1].endswith("smtp said  [31mno")
    told = ask(dead, "dead", "--tenant", "acme", "--kind", "mail", "--limit", "1")
    assert [(row["id"], row["error"]) for row in told] == [(2, "smtp said\n\x1b[31mno")]


def test_replay(dead: str) -> None:
    refused = run(dead, "replay")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "ids, --tenant or --kind, or else --all" in refused.stderr
    assert run(dead, "replay", "3", "--all").exit_code == 2
    one_unknown = run(dead, "replay", "3", "4", "--json")  # 4 is alive
    assert json.loads(one_unknown.stdout) == {"replayed": 1, "skipped": []}
    assert (one_unknown.exit_code, one_unknown.stderr) == (1, "tickkeeper: no dead letter has id 4\n")
    unknown = run(dead, "replay", "999", "3")
    assert (unknown.exit_code, unknown.stdout) == (1, "replayed 0\n")
    assert unknown.stderr == "tickkeeper: no dead letter has id 999, 3\n"
    assert ask(dead, "replay", "2") == {"replayed": 1, "skipped": []}
    lines = run(dead, "replay", "--all").stdout.splitlines()
    assert lines == ["replayed 0", "skipped 1, their dedup_key has a row in the outbox: 1"]


def test_purge(dead: str) -> None:
    assert run(dead, "purge").exit_code == 2
    assert run(dead, "purge", "--older-than", "30d").stdout == "purged 0\n"
    assert ask(dead, "purge", "3") == {"purged": 1}
    assert ask(dead, "purge", "--older-than", "0s", "--tenant", "acme") == {"purged": 2}
    for wrong in ("30", "1y", "-1d", "d"):
        refused = run(dead, "purge", f"--older-than={wrong}")
        assert refused.exit_code == 2
        assert f"--older-than={wrong}: must be a whole number and a unit" in refused.stderr


def test_faults_are_one_line_each(database: str) -> None:
    for dsn, code, told in (
        ("", 2, "tickkeeper: TICKKEEPER_DATABASE_URL is not set\n"),
        ("postgresql://user:verysecret%zz@host/x", 2, "tickkeeper: the database's connection string cannot be read"),
        ("postgresql://user:verysecret@127.0.0.1:1/x", 1, "tickkeeper: the database cannot be reached: "),
        (database, 1, 'tickkeeper: the outbox schema "tickkeeper" is missing from the database: run `tickkeeper'),
    ):
        done = run(dsn, "stats")
        assert done.exit_code == code
        assert done.stderr.startswith(told)
        assert done.stderr.count("\n") == 1
        assert "verysecret" not in done.output
    assert run(database, "stats", "--schema", 'x"').exit_code == 2
