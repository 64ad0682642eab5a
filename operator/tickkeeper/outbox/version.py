"""Whether the database's schema and this code fit together."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tickkeeper.outbox.queries import DEFAULT_SCHEMA, with_schema

_DIRECTIVE = re.compile(r"^-- @(\w+) ?(.*)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file of migrations/. Lines ``-- @word`` in it are for the program:

    ``@online``: its statements are run one by one outside of a transaction, and each may be repeated;
    ``@serves N``: code as old as version N works on the schema that it leaves.
    """

    version: int
    name: str
    text: str

    @property
    def online(self) -> bool:
        """Whether it builds indexes while others write."""
        return "online" in dict(_DIRECTIVE.findall(self.text))

    @property
    def serves(self) -> int | None:
        """The oldest code's version that works with it; None when only its own does."""
        found = dict(_DIRECTIVE.findall(self.text)).get("serves")
        return None if found is None else int(found)

    def sql(self, schema: str) -> bytes:
        """Its statements for one schema."""
        return with_schema(self.text, schema)

    def statements(self, schema: str) -> list[bytes]:
        """The same one by one, for files without a semicolon inside a statement."""
        code = _COMMENT.sub("", self.text)
        return [with_schema(part.strip(), schema) for part in code.split(";") if part.strip()]


@cache
def migrations() -> tuple[Migration, ...]:
    """All of them, in order; the last one's version is the code's own."""
    found = []
    for file in files("tickkeeper.outbox").joinpath("migrations").iterdir():
        name, _, suffix = file.name.rpartition(".")
        if suffix == "sql":
            found.append(Migration(int(name[:4]), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda each: each.version))


def code_version() -> int:
    """The schema version that this code is written for."""
    return migrations()[-1].version


def missing(schema: str) -> str:
    """What is said where there is no schema at all."""
    return f'the outbox schema "{schema}" is missing from the database: run `{_command(schema)}`'


def misfit(schema: str, version: int, compatible_with: int | None) -> str | None:
    """One line on why code and schema do not fit; None when they do.

    ``compatible_with`` is the oldest code's version that the schema still serves, as its migration recorded it.
    """
    ours = code_version()
    if version < ours:
        return (
            f'the outbox schema "{schema}" has version {version}, this release needs {ours}: run `{_command(schema)}`'
        )
    if version > ours and (compatible_with is None or compatible_with > ours):
        return (
            f'the outbox schema "{schema}" has version {version}, newer than this release\'s {ours}: install the '
            f"release that ran `{_command(schema)}`"
        )
    return None


def _command(schema: str) -> str:
    return "tickkeeper outbox migrate" + ("" if schema == DEFAULT_SCHEMA else f" --schema {schema}")
