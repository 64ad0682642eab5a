"""The SQL files: every query explained, every schema name safe."""

import re
from importlib.resources import files

import pytest

from tickkeeper.outbox.queries import check_schema_name, queries, with_schema
from tickkeeper.outbox.version import migrations

SQL = {file.name: file.read_text() for file in files("tickkeeper.outbox").joinpath("sql").iterdir()}
MIGRATIONS = "".join(each.text for each in migrations())


@pytest.mark.parametrize("name", ["tickkeeper", "_x", "a1_b2", "x" * 63, "public"])
def test_good_schema_names(name: str) -> None:
    assert check_schema_name(name) == name
    assert f'"{name}".outbox'.encode() in queries(name)["claim"]


@pytest.mark.parametrize(
    "name",
    ["", "1x", "X", "a-b", 'a"b', "a;b", "a b", "x" * 64, "pg_temp", "information_schema", "a\n", "ä", "{schema}"],
)
def test_bad_schema_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"schema name is .*: must be 1 to 63 characters of a-z, 0-9 and _"):
        queries(name)
    with pytest.raises(ValueError, match="schema name is"):
        with_schema("SELECT 1", name)


def test_nothing_names_a_schema_of_its_own() -> None:
    for name, text in queries("apart").items():
        code = b"\n".join(line for line in text.splitlines() if not line.strip().startswith(b"--"))
        assert b"tickkeeper" not in code, name
        assert b"{schema" not in code, name
    for migration in migrations():
        code = b"\n".join(line for line in migration.sql("apart").splitlines() if not line.strip().startswith(b"--"))
        assert b"tickkeeper" not in code, migration.name


def test_no_query_takes_the_clients_time_or_a_volatile_bound() -> None:
    for name, text in queries("tickkeeper").items():
        assert not re.search(rb"%\((now|time|at)\)s", text), name
        assert not re.search(rb"<= clock_timestamp", text), name


@pytest.mark.parametrize("name", ["fail", "snooze", "release", "renew", "cancel"])
def test_c2_writes_lock_their_rows_in_the_order_of_the_ids(name: str) -> None:
    """Whatever the plan: a scan of the table finds them in another order than one of the index."""
    text = queries("tickkeeper")[name].decode()
    locks = text.index("FOR UPDATE")
    assert text[:locks].rstrip().endswith("ORDER BY o.id")
    assert not re.search(r"\b(DELETE|UPDATE)\b", text[: locks - 1].split("\n", 1)[1])


def test_indexes_named_in_queries_exist() -> None:
    created = set(re.findall(r"CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY IF NOT EXISTS )?(\w+)", MIGRATIONS))
    named = {
        name
        for text in SQL.values()
        for name in re.findall(r"\boutbox_(?:due|dedup|run|head|dead_\w+|key_check_key|block_key)\b", text)
    }
    assert named == created


def test_queries_named_beside_an_index_exist() -> None:
    served = re.findall(r"^-- Serves: (.*?)\nCREATE ", MIGRATIONS, re.MULTILINE | re.DOTALL)
    assert len(served) == MIGRATIONS.count("INDEX ")
    listed = {name for each in served for name in re.findall(r"\b[a-z_]+\b", re.sub(r"\(.*?\)", "", each))}
    prose = {"and", "of", "one", "tenant", "a", "with", "few", "rows", "among", "many"}
    assert listed - prose <= set(queries("tickkeeper"))


def test_migrations_are_numbered_without_gaps() -> None:
    assert [each.version for each in migrations()] == list(range(1, len(migrations()) + 1))
