"""``tickkeeper outbox`` against a real database."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from tickkeeper.cli.outbox import outbox
from tickkeeper.outbox import Failure, NewRow, PostgresOutbox, enqueue_many_sync, postgres_dead
from tickkeeper.outbox.version import migrations

if TYPE_CHECKING:
    import redis as redis_py

ROOT = Path(__file__).parents[3]


def run(dsn: str, *arguments: str, redis: str = "") -> Result:
    environment = {"TICKKEEPER_DATABASE_URL": dsn, "TICKKEEPER_REDIS_URL": redis}
    return CliRunner().invoke(outbox, arguments, env=environment)


def ask(dsn: str, *arguments: str, redis: str = "") -> Any:
    done = run(dsn, *arguments, "--json", redis=redis)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def letters(dsn: str) -> str:
    """Three dead letters of two tenants, one live row."""
    with psycopg.connect(dsn) as producer:
        rows = [NewRow("acme", "mail", {"n": n}, dedup_key=f"k{n}") for n in range(2)]
        enqueue_many_sync(producer, [*rows, NewRow("other", "sms", "hi", {"h": "v"}, ordering_key="o")])
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
        "schema tickkeeper: version 0 -> 5 (0001_outbox, 0002_ordering_indexes, 0003_ordering, "
        "0004_replay_into_a_run, 0005_dead_twins)\n"
    )
    assert run(database, "migrate").stdout == "schema tickkeeper: version 5, nothing to do\n"
    told = ask(database, "migrate", "--schema", "apart")
    assert told == {"schema": "apart", "before": 0, "after": 5, "applied": [each.name for each in migrations()]}


def test_stats(dead: str) -> None:
    done = run(dead, "stats")
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("TENANT", "KIND", "READY", "LEASED", "SCHEDULED", "BEHIND", "DEAD", "OLDEST", "SCHEDULE")
    ]
    assert [[*line.split()[:7], line.split()[-1]] for line in lines[1:]] == [
        ["acme", "mail", "1", "0", "0", "0", "2", "?"],
        ["other", "sms", "0", "0", "0", "0", "1", "?"],
    ]
    assert done.stderr == (
        "tickkeeper: schedules not looked at: TICKKEEPER_REDIS_URL is not set, so nobody was asked for schedules\n"
    )
    (row,) = ask(dead, "stats", "--tenant", "other")
    assert (row["tenant_id"], row["dead"], row["oldest"], row["schedule"]) == ("other", 1, None, None)


def test_stats_name_tenants_without_a_schedule(dead: str, redis_url: str, redis: "redis_py.Redis") -> None:
    with psycopg.connect(dead) as producer:
        enqueue_many_sync(producer, [NewRow("forgotten", "mail", 1)])
    register(redis, "ticks", "s1", {"tenantId": "acme"})
    done = run(dead, "stats", redis=redis_url)
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:]] == ["yes", "none", "yes"]
    assert done.stderr.startswith("tickkeeper: no schedule for forgotten (redis://127.0.0.1:")
    told = ask(dead, "stats", redis=redis_url)
    # other has dead rows only: nothing waits for a tick there
    assert [(row["tenant_id"], row["schedule"]) for row in told] == [
        ("acme", True),
        ("forgotten", False),
        ("other", True),
    ]
    # another queue of the prefix counts, another prefix does not
    register(redis, "more", "s2", {"tenantId": "forgotten"})
    assert ask(dead, "stats", "--tenant", "forgotten", redis=redis_url)[0]["schedule"] is True
    assert ask(dead, "stats", "--tenant", "forgotten", "--queue", "ticks", redis=redis_url)[0]["schedule"] is False
    assert ask(dead, "stats", "--tenant", "acme", "--prefix", "x", redis=redis_url)[0]["schedule"] is False
    unreachable = run(dead, "stats", redis="redis://:verysecret@127.0.0.1:1")
    assert unreachable.exit_code == 0
    assert "schedules not looked at: redis://127.0.0.1:1/0 was asked" in unreachable.stderr
    assert "verysecret" not in unreachable.output
    wrong = run(dead, "stats", redis="http://:verysecret@host")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("tickkeeper: TICKKEEPER_REDIS_*: url must begin with one of redis://")
    assert "verysecret" not in wrong.output


def test_ticks_without_a_tenant_are_the_default_ones(
    dead: str, redis_url: str, redis: "redis_py.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    register(redis, "ticks", "legacy", {})
    assert ask(dead, "stats", "--tenant", "acme", redis=redis_url)[0]["schedule"] is False
    monkeypatch.setenv("TICKKEEPER_DEFAULT_TENANT", "acme")
    assert ask(dead, "stats", "--tenant", "acme", redis=redis_url)[0]["schedule"] is True


def register(redis: "redis_py.Redis", queue: str, scheduler: str, data: dict[str, str]) -> None:
    """A scheduler as BullMQ keeps it, as far as we look."""
    redis.zadd(f"bull:{queue}:repeat", {scheduler: 1})
    redis.hset(f"bull:{queue}:repeat:{scheduler}", mapping={"data": json.dumps(data)})


def test_quick_stats(dead: str, redis_url: str) -> None:
    lines = run(dead, "stats", "--quick").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["WHAT", "HOW"],
        ["ready", "1"],
        ["leased", "0"],
        ["scheduled", "0"],
        ["behind", "0"],
        ["dead", "3"],
        ["tenants", "with"],
        ["earliest", "due"],
        ["oldest", "enqueued"],
    ]
    told = ask(dead, "stats", "--quick", redis=redis_url)
    assert (told["ready"], told["dead"], told["tenants"], told["without_schedule"]) == (1, 3, 1, ["acme"])


def test_a_count_that_takes_too_long_ends(dsn: str) -> None:
    with psycopg.connect(dsn) as altering:
        altering.execute("LOCK TABLE tickkeeper.outbox IN ACCESS EXCLUSIVE MODE")
        done = run(dsn, "stats", "--timeout", "1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == ("tickkeeper: counting took longer than 1 s: give --tenant, --quick or a longer --timeout\n")


def test_list(dead: str) -> None:
    lines = run(dead, "list").stdout.splitlines()
    assert lines[0].split() == [
        "ID",
        "TENANT",
        "KIND",
        "STATE",
        "ATTEMPTS",
        "DUE",
        "DEDUP_KEY",
        "ORDERING_KEY",
        "ERROR",
    ]
    assert [line.split()[:5] for line in lines[1:]] == [["4", "acme", "mail", "ready", "0/20"]]
    first = run(dead, "list", "--state", "dead", "--limit", "2")
    assert [line.split()[0] for line in first.stdout.splitlines()] == ["ID", "1", "2"]
    assert "\x1b" not in first.stdout
    cursor = first.stderr.removeprefix("tickkeeper: there is more: --after ").strip()
    told = ask(dead, "list", "--state", "dead", "--after", cursor)
    assert [row["id"] for row in told["rows"]] == [3]
    assert told["after"] is None
    assert ask(dead, "list", "--tenant", "nobody") == {"rows": [], "after": None}
    wrong = run(dead, "list", "--after", "x")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        "tickkeeper: cursor is 'x': must be one that this listing gave\n",
    )


def test_cancel(dead: str) -> None:
    assert run(dead, "cancel", "--tenant", "acme").exit_code == 2
    assert run(dead, "cancel", "--tenant", "acme", "4", "--dedup-key", "k0").exit_code == 2
    strange = run(dead, "cancel", "--tenant", "other", "4")
    assert (strange.exit_code, strange.stdout) == (1, "cancelled 0\n")
    assert strange.stderr == "tickkeeper: no row of tenant other waits with id 4\n"
    assert ask(dead, "cancel", "--tenant", "acme", "--dedup-key", "k0") == {
        "cancelled": 1,
        "held": 0,
        "held_ids": [],
        "absent_ids": [],
    }
    again = run(dead, "cancel", "--tenant", "acme", "--dedup-key", "k0")
    assert (again.exit_code, again.stderr) == (1, "tickkeeper: no row of tenant acme waits with dedup_key k0\n")


def test_cancel_names_only_what_it_left(dead: str) -> None:
    some = run(dead, "cancel", "--tenant", "acme", "4", "998", "999", "--json")
    assert (some.exit_code, some.stderr) == (1, "tickkeeper: no row of tenant acme waits with id 998, 999\n")
    assert json.loads(some.stdout) == {"cancelled": 1, "held": 0, "held_ids": [], "absent_ids": [998, 999]}


async def test_cancel_leaves_what_a_worker_has(dead: str) -> None:
    async with PostgresOutbox(dead) as store:
        await store.claim("acme", kinds=None, limit=9, lease=timedelta(seconds=30))
    held = await asyncio.to_thread(run, dead, "cancel", "--tenant", "acme", "4")
    assert (held.exit_code, held.stdout, held.stderr) == (
        1,
        "cancelled 0\n",
        "tickkeeper: 1 stay, a worker has them: id 4\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("pause", "--kind", "mail.*"),
        ("pause", "--tenant", "acme", "--kind", "mail.*"),
        ("list", "--kind", "mail.*"),
        ("dead", "--kind", "mail.*"),
        ("replay", "--kind", "mail.*"),
        ("purge", "--older-than", "0s", "--kind", "mail.*"),
    ],
)
def test_a_pattern_of_kinds_is_refused_where_a_kind_is_wanted(dead: str, arguments: tuple[str, ...]) -> None:
    done = run(dead, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "tickkeeper: --kind=mail.*: must be an exact kind, patterns are for handlers\n"
    assert ask(dead, "paused") == []
    assert len(ask(dead, "dead")) == 3


@pytest.mark.parametrize(
    "arguments",
    [("pause",), ("list",), ("stats",), ("dead",), ("replay",), ("purge", "--older-than", "0s"), ("cancel", "4")],
)
def test_a_pattern_of_tenants_is_refused(dead: str, arguments: tuple[str, ...]) -> None:
    done = run(dead, *arguments, "--tenant", "ac*")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "tickkeeper: --tenant=ac*: must be a tenant's exact name\n"


def test_a_kind_that_has_no_rows_yet_can_be_paused(dead: str) -> None:
    assert run(dead, "pause", "--kind", "mail.later").stdout == "paused kind mail.later\n"
    assert run(dead, "resume", "--kind", "mail.*").exit_code == 1


def test_pause_and_resume(dead: str) -> None:
    assert run(dead, "pause").exit_code == 2
    assert run(dead, "pause", "--tenant", "acme").stdout == "paused tenant acme\n"
    told = ask(dead, "pause", "--tenant", "other", "--kind", "sms")
    assert told == {"tenant_id": "other", "kind": "sms", "paused": True}
    lines = run(dead, "paused").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["TENANT", "KIND"], ["acme", "*"], ["other", "sms"]]
    assert run(dead, "resume", "--tenant", "acme").stdout == "resumed tenant acme\n"
    again = run(dead, "resume", "--tenant", "acme")
    assert (again.exit_code, again.stderr) == (
        1,
        "tickkeeper: tenant acme was not paused: `tickkeeper outbox paused` lists what is\n",
    )
    assert [each["tenant_id"] for each in ask(dead, "paused")] == ["other"]


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


@pytest.mark.parametrize("command", ["list", "show 1", "dead", "paused", "stats", "doctor"])
def test_times_are_read_whatever_the_databases_style(dead: str, command: str) -> None:
    with psycopg.connect(dead, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(
            psycopg.sql.SQL("ALTER DATABASE {} SET DateStyle = 'German'").format(psycopg.sql.Identifier(name))
        )
        connection.execute("INSERT INTO tickkeeper.outbox_pause (tenant_id, kind) VALUES ('acme', '')")
    argv = [sys.executable, "-c", "from tickkeeper.cli import main; main()", "outbox", *command.split()]
    environment = os.environ | {"TICKKEEPER_DATABASE_URL": dead, "PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_dead(dead: str) -> None:
    lines = run(dead, "dead").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "3", "2", "1"]
    assert lines[1].split()[1:6] == ["other", "sms", "o", "1/20", "rejected"]
    assert lines[1].endswith("smtp said  [31mno")
    told = ask(dead, "dead", "--tenant", "acme", "--kind", "mail", "--limit", "1")
    assert [(row["id"], row["error"]) for row in told] == [(2, "smtp said\n\x1b[31mno")]


def test_dead_says_when_there_are_more(dead: str) -> None:
    assert run(dead, "dead", "--limit", "3").stderr == ""
    for more in ((), ("--json",)):
        cut = run(dead, "dead", "--limit", "2", *more)
        assert cut.exit_code == 0
        assert cut.stderr == "tickkeeper: these are the latest 2: all by pages: tickkeeper outbox list --state dead\n"
    assert [row["id"] for row in json.loads(cut.stdout)] == [3, 2]


def test_replay(dead: str) -> None:
    refused = run(dead, "replay")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "ids, --tenant or --kind, or else --all" in refused.stderr
    for more in (("3",), ("--tenant", "acme"), ("--kind", "mail")):
        refused = run(dead, "replay", "--all", *more)
        assert (refused.exit_code, refused.stderr) == (
            2,
            "tickkeeper: --all: must be without ids, --tenant and --kind\n",
        )
    one_unknown = run(dead, "replay", "3", "4", "--json")  # 4 is alive
    assert json.loads(one_unknown.stdout) == {"replayed": 1, "skipped": [], "absent": [4], "left": []}
    assert (one_unknown.exit_code, one_unknown.stderr) == (1, "tickkeeper: no dead letter has id 4\n")
    unknown = run(dead, "replay", "999", "3")
    assert (unknown.exit_code, unknown.stdout) == (1, "replayed 0\n")
    assert unknown.stderr == "tickkeeper: no dead letter has id 999, 3\n"
    assert ask(dead, "replay", "2") == {"replayed": 1, "skipped": [], "absent": [], "left": []}
    lines = run(dead, "replay", "--all").stdout.splitlines()
    assert lines == ["replayed 0", "skipped 1, their dedup_key has a row in the outbox: 1"]


def test_replay_fails_for_ids_that_it_left(dead: str) -> None:
    skipped = run(dead, "replay", "1", "2")
    assert (skipped.exit_code, skipped.stdout) == (1, "replayed 1\n")
    assert skipped.stderr == "tickkeeper: skipped 1, their dedup_key has a row in the outbox: 1\n"
    other = run(dead, "replay", "3", "999", "--tenant", "acme")
    assert (other.exit_code, other.stdout) == (1, "replayed 0\n")
    assert other.stderr == (
        "tickkeeper: no dead letter has id 999; left, since the other options do not fit it: id 3\n"
    )


def test_replay_names_rows_that_wait_for_a_producer(dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_dead, "_IN_VAIN", 0.0)
    with psycopg.connect(dead) as producer:
        enqueue_many_sync(producer, [NewRow("other", "sms", 1, ordering_key="o")])
        told = run(dead, "replay", "2", "3")
        producer.rollback()
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == (
        "tickkeeper: replayed 1; 1 stay dead, since a producer's open transaction holds their ordering_key or "
        "dedup_key, replay them again when it has ended: 3\n"
    )
    assert ask(dead, "replay", "3") == {"replayed": 1, "skipped": [], "absent": [], "left": []}


def test_purge(dead: str) -> None:
    assert run(dead, "purge").exit_code == 2
    assert run(dead, "purge", "--older-than", "30d").stdout == "purged 0\n"
    assert ask(dead, "purge", "3") == {"purged": 1, "absent": [], "left": []}
    gone = run(dead, "purge", "3", "4", "1", "--json")
    assert (gone.exit_code, json.loads(gone.stdout)) == (1, {"purged": 1, "absent": [3, 4], "left": []})
    assert gone.stderr == "tickkeeper: no dead letter has id 3, 4\n"
    young = run(dead, "purge", "2", "--older-than", "30d")
    assert (young.exit_code, young.stdout) == (1, "purged 0\n")
    assert young.stderr == "tickkeeper: left, since the other options do not fit it: id 2\n"
    assert ask(dead, "purge", "--older-than", "0s", "--tenant", "acme") == {"purged": 1, "absent": [], "left": []}
    for wrong in ("30", "1y", "-1d", "d"):
        refused = run(dead, "purge", f"--older-than={wrong}")
        assert refused.exit_code == 2
        assert f"--older-than={wrong}: must be a whole number and a unit" in refused.stderr


def test_purging_everything_must_be_meant(dead: str) -> None:
    zero = run(dead, "purge", "--older-than", "0s")
    assert (zero.exit_code, zero.stdout) == (2, "")
    assert zero.stderr.startswith("tickkeeper: --older-than=0s: would delete all dead letters of all tenants")
    for more in (("3",), ("--tenant", "acme"), ("--kind", "mail"), ("--older-than", "30d")):
        assert run(dead, "purge", "--all", *more).exit_code == 2
    assert ask(dead, "purge", "--all") == {"purged": 3, "absent": [], "left": []}


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
