"""How a purge goes through the dead letters."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.rows import TupleRow

from tickkeeper.outbox.calls import StatementTimedOut
from tickkeeper.outbox.postgres_dead import PostgresDeadLetters

DEATH = datetime(2026, 1, 1, tzinfo=UTC)


async def test_each_batch_begins_where_the_one_before_ended() -> None:
    """What a filter leaves would else be read again by every batch."""
    asked: list[Mapping[str, Any]] = []
    answers: list[list[TupleRow] | Exception] = [
        [(500, DEATH, 7)],
        StatementTimedOut("too slow"),
        [(20, DEATH + timedelta(1), 3)],
        [],
    ]

    async def query(name: str, values: Mapping[str, Any]) -> list[TupleRow]:
        assert name == "purge"
        asked.append(values)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    looked_after = []

    async def look_after_keys() -> None:
        looked_after.append(len(asked))

    assert await PostgresDeadLetters(query, look_after_keys).purge(older_than=timedelta(), kind="mail") == 520
    assert [(each["last_death"], each["last_id"], each["limit"]) for each in asked] == [
        (None, None, 500),
        (DEATH, 7, 500),
        (DEATH, 7, 250),
        (DEATH + timedelta(1), 3, 250),
    ]
    assert {each["kind"] for each in asked} == {"mail"}
    assert looked_after == [4]
