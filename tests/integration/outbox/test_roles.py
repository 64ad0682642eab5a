"""What each role needs, and that it can do no more."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from embedded.postgres import Postgres
from tests.integration.outbox.releases import migrate_to
from tickkeeper.outbox import Failure, PostgresOutbox, StoreUnavailable, enqueue_sync, migrate_sync

PRODUCER = (
    "GRANT USAGE ON SCHEMA tickkeeper TO {role}",
    "GRANT EXECUTE ON FUNCTION tickkeeper.enqueue TO {role}",
)
WORKER = (
    "GRANT USAGE ON SCHEMA tickkeeper TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tickkeeper TO {role}",
    "GRANT EXECUTE ON FUNCTION tickkeeper.outbox_mend TO {role}",
)
#: As they were before there were ordering keys.
OLDER_WORKER = (
    "GRANT USAGE ON SCHEMA tickkeeper TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON tickkeeper.outbox, tickkeeper.outbox_dead TO {role}",
    "GRANT SELECT ON tickkeeper.schema_version TO {role}",
)


class Role:
    """A role without grants, and its dsn."""

    def __init__(self, server: Postgres, dsn: str) -> None:
        self.name = "outbox_role"
        self.admin = dsn
        self.dsn = f"postgresql://{self.name}:verysecret@127.0.0.1:{server.port}/{dsn.rpartition('/')[2]}"

    def grant(self, *statements: str) -> None:
        with psycopg.connect(self.admin, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.format(role=self.name).encode())


@pytest.fixture
def role(postgres_server: Postgres, dsn: str) -> Iterator[Role]:
    role = Role(postgres_server, dsn)
    role.grant("CREATE ROLE {role} LOGIN PASSWORD 'verysecret'")
    yield role
    role.grant("DROP OWNED BY {role}", "DROP ROLE {role}")


def test_a_producer_can_enqueue_and_nothing_else(role: Role) -> None:
    role.grant(*PRODUCER)
    with psycopg.connect(role.dsn, autocommit=True) as producer:
        assert enqueue_sync(producer, "acme", "mail", 1, dedup_key="k").outcome == "inserted"
        assert enqueue_sync(producer, "acme", "mail", 1, dedup_key="k").outcome == "kept"
        assert enqueue_sync(producer, "acme", "mail", 1, dedup_key="k", on_duplicate="replace").outcome == "replaced"
        for statement in (
            "SELECT * FROM tickkeeper.outbox",
            "SELECT * FROM tickkeeper.outbox_dead",
            "SELECT * FROM tickkeeper.schema_version",
            "INSERT INTO tickkeeper.outbox SELECT * FROM tickkeeper.outbox",
            "UPDATE tickkeeper.outbox SET kind = 'x'",
            "DELETE FROM tickkeeper.outbox",
            "TRUNCATE tickkeeper.outbox",
            "CREATE TABLE tickkeeper.mine (x int)",
            "CREATE FUNCTION tickkeeper.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "DROP FUNCTION tickkeeper.enqueue",
            "ALTER FUNCTION tickkeeper.enqueue RESET search_path",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                producer.execute(statement.encode())


def test_what_a_producer_puts_in_its_way_is_not_used(role: Role) -> None:
    """The function runs with its owner's rights, so it must not find anything of the caller's."""
    role.grant(*PRODUCER)
    with psycopg.connect(role.dsn, autocommit=True) as producer:
        producer.execute("CREATE TEMP TABLE outbox (LIKE pg_catalog.pg_class)")
        body = "SELECT (1/0)::text::timestamptz"
        producer.execute(
            f"CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS '{body}'".encode()
        )
        producer.execute("SET search_path = pg_temp, pg_catalog")
        assert enqueue_sync(producer, "acme", "mail", 1).outcome == "inserted"


def test_without_grants_not_even_that(role: Role) -> None:
    with psycopg.connect(role.dsn, autocommit=True) as producer, pytest.raises(psycopg.errors.InsufficientPrivilege):
        enqueue_sync(producer, "acme", "mail", 1)
    role.grant(PRODUCER[0])
    with psycopg.connect(role.dsn, autocommit=True) as producer, pytest.raises(psycopg.errors.InsufficientPrivilege):
        enqueue_sync(producer, "acme", "mail", 1)


async def test_a_worker_has_all_that_it_needs(role: Role) -> None:
    async with PostgresOutbox(role.dsn) as store:
        with pytest.raises(StoreUnavailable, match="role lacks a grant: permission denied for schema tickkeeper"):
            await store.kinds("acme")
        role.grant(*WORKER)
        await work(role, store)


async def test_a_worker_of_the_former_release_is_given_what_is_new(role: Role, postgres_server: Postgres) -> None:
    dsn = postgres_server.create_database()
    migrate_to(dsn, 1)
    own = Role(postgres_server, dsn)
    own.grant(*OLDER_WORKER)
    migrate_sync(dsn)
    try:
        async with PostgresOutbox(own.dsn) as store:
            await work(own, store)
    finally:
        postgres_server.drop_database(dsn)


async def work(role: Role, store: PostgresOutbox) -> None:
    """Everything that workers, and people with a worker's grants, do."""
    with psycopg.connect(role.admin, autocommit=True) as producer:
        for attempts in (1, 20, 20):
            enqueue_sync(producer, "acme", "mail", 1, max_attempts=attempts)
        for _ in range(3):
            enqueue_sync(producer, "acme", "mail", 1, ordering_key="k")
    for _ in range(3):
        taken = await store.claim("acme", kinds=None, limit=9, lease=timedelta(seconds=9))
        rows = [row.id for row in taken.rows]
        await store.renew(taken.lease_id, rows, timedelta(seconds=9))
        await store.fail(taken.lease_id, [Failure(row, "no", dead=True) for row in rows])
    assert (await store.dead_letters.replay()).replayed == 6
    taken = await store.claim("acme", kinds=None, limit=9, lease=timedelta(seconds=9))
    async with store.transaction(taken.lease_id, [taken.rows[0].id]) as transaction:
        transaction.done(taken.rows[0].id)
    await store.release(taken.lease_id, [row.id for row in taken.rows])
    await store.cancel("acme", ids=[row.id for row in taken.rows])
    await store.dead_letters.purge(older_than=timedelta())
    await store.show(1)
    await store.pause(kind="x")
    await store.paused()
    await store.resume(kind="x")
    assert [(each.ready, each.behind) for each in await store.stats()] == [(3, 2)]
