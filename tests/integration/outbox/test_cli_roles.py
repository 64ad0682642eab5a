"""What people may do with ``tickkeeper outbox`` as a reader, and as a worker; docs/outbox.md has the grants."""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from embedded.postgres import Postgres
from tests.integration.outbox.releases import migrate_to
from tickkeeper.cli.outbox import outbox
from tickkeeper.outbox import migrate_sync

DOCS = Path(__file__).parents[3] / "docs" / "outbox.md"
LOOKS = (
    ["stats"],
    ["stats", "--quick"],
    ["list"],
    ["list", "--state", "dead"],
    ["show", "1"],
    ["dead"],
    ["paused"],
    ["doctor", "--role", "reader"],
)
CHANGES = (
    ["pause", "--tenant", "acme"],
    ["resume", "--tenant", "acme"],
    ["cancel", "--tenant", "acme", "1"],
    ["replay", "--all"],
    ["purge", "--all"],
)


def grants(role: str) -> list[str]:
    """The statements of the documents for one role."""
    found = re.search(rf"^-- a {role}\n(.*?)\n\n", DOCS.read_text() + "\n\n", re.MULTILINE | re.DOTALL)
    assert found, role
    return [statement.strip() for statement in found[1].replace("```", "").split(";") if statement.strip()]


class Role:
    """A login role of one database."""

    def __init__(self, server: Postgres, dsn: str, name: str) -> None:
        self.name = name
        self.admin = dsn
        self.dsn = f"postgresql://{name}:verysecret@127.0.0.1:{server.port}/{dsn.rpartition('/')[2]}"

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.admin, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(
            outbox, arguments, env={"TICKKEEPER_DATABASE_URL": self.dsn, "TICKKEEPER_REDIS_URL": ""}
        )


@pytest.fixture
def roles(postgres_server: Postgres, dsn: str) -> Iterator[dict[str, Role]]:
    """A role of each sort, with the documented grants."""
    names = {"producer": "my_app", "worker": "my_worker", "reader": "my_reader"}
    made = {sort: Role(postgres_server, dsn, name) for sort, name in names.items()}
    for sort, role in made.items():
        role.execute(f"CREATE ROLE {role.name} LOGIN PASSWORD 'verysecret'", *grants(sort))
    with psycopg.connect(made["producer"].dsn) as producer:
        producer.execute("SELECT * FROM tickkeeper.enqueue('acme', 'mail', '1')")
    yield made
    for role in made.values():
        role.execute(f"DROP OWNED BY {role.name}", f"DROP ROLE {role.name}")


def test_a_reader_sees_everything_and_changes_nothing(roles: dict[str, Role]) -> None:
    reader = roles["reader"]
    for arguments in LOOKS:
        done = reader.run(*arguments)
        assert done.exit_code == 0, (arguments, done.output)
    for arguments in CHANGES:
        done = reader.run(*arguments)
        assert done.exit_code == 1, (arguments, done.output)
        assert "permission denied" in done.stderr
    with psycopg.connect(reader.dsn, autocommit=True) as connection:
        for statement in (
            "SELECT * FROM tickkeeper.enqueue('acme', 'mail', '1')",
            "SELECT tickkeeper.outbox_mend('acme', 'k')",
            "DELETE FROM tickkeeper.outbox",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_a_worker_may_mend_too(roles: dict[str, Role]) -> None:
    for arguments in [*LOOKS[:-1], ["doctor"], *CHANGES]:
        done = roles["worker"].run(*arguments)
        assert done.exit_code == 0, (arguments, done.output)


def test_a_producer_sees_nothing(roles: dict[str, Role]) -> None:
    for arguments in (*LOOKS[:-1], *CHANGES):
        done = roles["producer"].run(*arguments)
        assert done.exit_code == 1, arguments
        assert "permission denied" in done.stderr
    assert roles["producer"].run("doctor", "--role", "producer").exit_code == 0


def test_a_reader_of_the_former_release_is_given_what_is_new(postgres_server: Postgres) -> None:
    dsn = postgres_server.create_database()
    migrate_to(dsn, 1)
    reader = Role(postgres_server, dsn, "my_reader")
    reader.execute("CREATE ROLE my_reader LOGIN PASSWORD 'verysecret'", *grants("reader"))
    try:
        migrate_sync(dsn)
        for arguments in LOOKS:
            done = reader.run(*arguments)
            expected = 1 if arguments[0] == "show" else 0  # there is no row
            assert done.exit_code == expected, (arguments, done.output)
    finally:
        reader.execute("DROP OWNED BY my_reader", "DROP ROLE my_reader")
        postgres_server.drop_database(dsn)
