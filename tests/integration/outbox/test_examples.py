"""The examples for producers work, and what the outbox does not take gets a clear answer."""

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from embedded.node import NodeProject
from tickkeeper.outbox import DuplicateRow, InvalidRow, enqueue_sync

EXAMPLES = Path(__file__).parents[3] / "examples" / "producers"
FIFTY_MB = 50 * 1024 * 1024


@pytest.fixture
def producer(dsn: str) -> Iterator["psycopg.Connection[Any]"]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProject]:
    with NodeProject(EXAMPLES / "node") as project:
        yield project


def rows(producer: "psycopg.Connection[Any]") -> list[tuple[Any, ...]]:
    return producer.execute(
        "SELECT kind, payload, dedup_key, ordering_key FROM tickkeeper.outbox ORDER BY id"
    ).fetchall()


def test_plain_sql(producer: "psycopg.Connection[Any]") -> None:
    producer.execute((EXAMPLES / "enqueue.sql").read_bytes())
    assert rows(producer) == [
        ("mail.welcome", {"user": 42}, None, None),
        ("search.index", {"user": 42, "version": 2}, "user-42", None),
        ("ledger.booked", {"amount": "9.90"}, None, "account-7"),
        ("mail.reminder", {"user": 42}, None, None),
    ]


def test_node(producer: "psycopg.Connection[Any]", dsn: str, node: NodeProject) -> None:
    first = [json.loads(line) for line in node.run("enqueue.mjs", env={"DATABASE_URL": dsn}).splitlines()]
    assert first == [{"id": "1", "outcome": "inserted"}, {"id": "2", "outcome": "inserted"}]
    assert rows(producer) == [
        ("mail.welcome", {"user": 42}, "welcome-42", None),
        ("audit", ["created", 42], None, None),
    ]
    again = node.run("enqueue.mjs", env={"DATABASE_URL": dsn}).splitlines()
    assert json.loads(again[0]) == {"id": "1", "outcome": "kept"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_python_examples_are_python_and_use_what_there_is(path: Path) -> None:
    """Their frameworks are no dependencies of ours: what they take from us is looked up, and the rest is parsed."""
    import tickkeeper.outbox

    tree = ast.parse(path.read_text())
    imported = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "tickkeeper.outbox"
        for name in node.names
    }
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "outbox"
    }
    assert imported | used
    for name in imported | used:
        assert hasattr(tickkeeper.outbox, name)


def test_the_node_example_parses(node: NodeProject) -> None:
    subprocess.run([node.node, "--check", EXAMPLES / "node" / "enqueue.mjs"], check=True)


@pytest.mark.parametrize(
    ("payload", "code", "message"),
    [
        ('\'{"a": "\\u0000"}\'', "22P05", "unsupported Unicode escape sequence"),
        (
            "convert_from('\\x2200226e'::bytea, 'UTF8')::jsonb",
            "22021",
            'invalid byte sequence for encoding "UTF8": 0x00',
        ),
        ("'{a: 1}'", "22P02", "invalid input syntax for type json"),
        ("''", "22P02", "invalid input syntax for type json"),
        (
            f"to_jsonb(repeat('x', {FIFTY_MB}))",
            "22023",
            f"payload is {FIFTY_MB + 2} bytes long as text: must be at most 16777216 (16 MiB)",
        ),
        ("NULL", "22023", "payload is null: must be a JSON value (JSON's own null is 'null'::jsonb)"),
    ],
    ids=["escaped NUL", "NUL byte", "no JSON", "empty", "50 MB", "null"],
)
def test_answers_in_sql(producer: "psycopg.Connection[Any]", payload: str, code: str, message: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        producer.execute(f"SELECT * FROM tickkeeper.enqueue('acme', 'mail', {payload})".encode())
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (code, message)
    assert rows(producer) == []


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"a": "\x00"}, "payload is text with a NUL character: must hold no NUL, PostgreSQL's jsonb cannot store it"),
        ({1, 2}, "payload is not JSON (Object of type set is not JSON serializable): must be made of dict, list,"),
        (b"bytes", "payload is not JSON (Object of type bytes is not JSON serializable): must be made of"),
        (float("nan"), "payload is not JSON (Out of range float values are not JSON compliant"),
        ("x" * FIFTY_MB, f"payload is {FIFTY_MB + 2} bytes long as JSON text: must be at most 16777216 bytes"),
    ],
    ids=["nul", "set", "bytes", "nan", "50 MB"],
)
def test_answers_in_python(producer: "psycopg.Connection[Any]", payload: Any, message: str) -> None:
    with producer.transaction():
        with pytest.raises(InvalidRow) as caught:
            enqueue_sync(producer, "acme", "mail", payload)
        assert str(caught.value).startswith(message)
        assert len(str(caught.value)) < 300  # not the payload itself
        enqueue_sync(producer, "acme", "mail", 1)  # the transaction goes on
    assert len(rows(producer)) == 1


def test_answers_to_a_duplicate_key(producer: "psycopg.Connection[Any]") -> None:
    call = "SELECT outcome FROM tickkeeper.enqueue('acme', 'mail', '{}', dedup_key => 'k', on_duplicate => %s)"
    outcomes = [producer.execute(call.encode(), [each]).fetchone() for each in ("error", "keep", "replace")]
    assert outcomes == [("inserted",), ("kept",), ("replaced",)]
    told = 'dedup_key is "k": must be unique among the rows of tenant "acme" that wait'
    with pytest.raises(psycopg.errors.UniqueViolation) as refused:
        producer.execute(call.encode(), ["error"])
    assert refused.value.diag.message_primary == told
    with pytest.raises(DuplicateRow) as caught:
        enqueue_sync(producer, "acme", "mail", 1, dedup_key="k", on_duplicate="error")
    assert str(caught.value) == told
    assert len(rows(producer)) == 1
