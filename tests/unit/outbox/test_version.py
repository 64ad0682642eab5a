"""Whether a schema and the code fit."""

import pytest

from tickkeeper.outbox.version import Migration, code_version, migrations, misfit, missing

OURS = code_version()


@pytest.mark.parametrize(
    ("version", "compatible_with"),
    [(OURS, None), (OURS, 1), (OURS + 1, OURS), (OURS + 5, 0)],
)
def test_fits(version: int, compatible_with: int | None) -> None:
    assert misfit("tickkeeper", version, compatible_with) is None


@pytest.mark.parametrize(
    ("version", "compatible_with", "told"),
    [
        (0, None, f"has version 0, this release needs {OURS}: run `tickkeeper outbox migrate`"),
        (OURS - 1, OURS, f"has version {OURS - 1}, this release needs {OURS}: run `tickkeeper outbox migrate`"),
        (OURS + 1, None, f"has version {OURS + 1}, newer than this release's {OURS}: install the release that ran"),
        (OURS + 1, OURS + 1, "newer than this release's"),
    ],
)
def test_does_not_fit(version: int, compatible_with: int | None, told: str) -> None:
    complaint = misfit("tickkeeper", version, compatible_with)
    assert complaint is not None
    assert told in complaint
    assert "`tickkeeper outbox migrate`" in complaint
    assert "\n" not in complaint


def test_the_command_names_a_schema_of_another_name() -> None:
    assert missing("tickkeeper").endswith("run `tickkeeper outbox migrate`")
    assert missing("apart").endswith("run `tickkeeper outbox migrate --schema apart`")


def test_what_a_migration_says_of_itself() -> None:
    plain = Migration(1, "0001_x", "CREATE TABLE {schema}.x (y int);")
    assert (plain.online, plain.serves) == (False, None)
    online = Migration(2, "0002_x", "-- @online\n-- @serves 1\n-- Why; and how.\nA {schema};\n\n-- Serves: x\nB;\n")
    assert (online.online, online.serves) == (True, 1)
    assert online.statements("apart") == [b'A "apart"', b"B"]


def test_the_former_release_is_served() -> None:
    """Workers are replaced after the schema, and go on meanwhile."""
    assert [each.serves for each in migrations()] == [None, 1, 1, 1, 1]
