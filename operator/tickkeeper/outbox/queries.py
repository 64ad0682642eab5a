"""The SQL files of this package, by name of query, with the schema's name put in."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from psycopg import sql

DEFAULT_SCHEMA = "tickkeeper"

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_QUERY_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def check_schema_name(name: str) -> str:
    """Return ``name``; ValueError unless it is a plain lower-case identifier that PostgreSQL leaves to users."""
    if not _SCHEMA_NAME.match(name) or name.startswith("pg_") or name == "information_schema":
        raise ValueError(
            f"schema name is {name!r}: must be 1 to 63 characters of a-z, 0-9 and _, not start with a digit or pg_, "
            "and not be information_schema"
        )
    return name


@cache
def queries(schema: str) -> Mapping[str, bytes]:
    """Every query of sql/*.sql for one schema, ready to be executed. ValueError for a bad schema name."""
    check_schema_name(schema)
    found: dict[str, bytes] = {}
    for file in files("tickkeeper.outbox").joinpath("sql").iterdir():
        _, *parts = _QUERY_NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, f"two queries are called {name}"
            found[name] = with_schema(text, schema)
    return found


def with_schema(text: str, schema: str) -> bytes:
    """``text`` with the quoted schema name for each ``{schema}``."""
    statement = sql.SQL(text)
    return statement.format(schema=sql.Identifier(check_schema_name(schema))).as_bytes(None)
