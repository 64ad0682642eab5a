"""Rows at the door: what passes, and what is said of what does not."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickkeeper.outbox.new_row import MAX_PAYLOAD_BYTES, InvalidRow, NewRow, parameters

ROW = NewRow("acme", "mail", {"to": "a@b.c"})
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\x00")), inner)
    ),
)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


NAME = "must be 1 to 128 characters without control characters"
BAD = [
    ({"tenant_id": ""}, f"tenant_id is empty: {NAME}"),
    ({"tenant_id": "x" * 129}, f"tenant_id is 129 characters long: {NAME}"),
    ({"tenant_id": "a\nb"}, f'tenant_id is "a\\nb": {NAME}'),
    ({"tenant_id": "a\x00b"}, f'tenant_id is "a\\u0000b": {NAME}'),
    ({"tenant_id": "a\ud800"}, 'tenant_id is "a\\ud800": must be valid Unicode text'),
    ({"tenant_id": 5}, "tenant_id is 5: must be a string of 1 to 128 characters"),
    ({"tenant_id": None}, "tenant_id is None: must be a string of 1 to 128 characters"),
    ({"kind": ""}, f"kind is empty: {NAME}"),
    ({"kind": "x\x7f"}, f'kind is "x\\u007f": {NAME}'),
    ({"payload": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}, "payload is not JSON (Object of type datetime is not"),
    (
        {"payload": {1, 2}},
        "payload is not JSON (Object of type set is not JSON serializable): must be made of dict, list",
    ),
    ({"payload": {(1, 2): 3}}, "payload is not JSON (keys must be str"),
    ({"payload": float("nan")}, "payload is not JSON (Out of range float values are not JSON compliant"),
    ({"payload": [float("inf")]}, "must hold finite numbers and no reference to itself"),
    ({"payload": itself()}, "payload is not JSON (Circular reference detected): must hold finite numbers"),
    ({"payload": nested(200_000)}, "payload is nested too deeply: must be JSON of fewer levels"),
    (
        {"payload": "a\x00b"},
        "payload is text with a NUL character: must hold no NUL, PostgreSQL's jsonb cannot store it",
    ),
    ({"payload": {"\x00": 1}}, "payload is text with a NUL character"),
    ({"payload": "\\\x00"}, "payload is text with a NUL character"),
    ({"payload": "\ud800"}, "payload is not valid Unicode (it holds a lone surrogate): must hold Unicode text only"),
    (
        {"payload": "x" * (MAX_PAYLOAD_BYTES - 1)},
        "payload is 16777217 bytes long as JSON text: must be at most 16777216 bytes",
    ),
    ({"payload": "å" * (MAX_PAYLOAD_BYTES // 2)}, "payload is 16777218 bytes long as JSON text"),
    ({"headers": ["x"]}, "headers is ['x']: must be a dict of strings"),
    ({"headers": {"x": 1}}, 'headers["x"] is 1: must be a string'),
    ({"headers": {1: "x"}}, "headers is keyed by 1: must be a dict of strings"),
    ({"headers": {"x": "\x00"}}, "headers is text with a NUL character"),
    ({"headers": {"x": "y" * 70_000}}, "headers is 70009 bytes long as JSON text: must be at most 65536 bytes"),
    ({"dedup_key": ""}, "dedup_key is 0 characters long: must be a string of 1 to 512 characters without NUL, or None"),
    ({"dedup_key": "x" * 513}, "dedup_key is 513 characters long: must be a string of 1 to 512"),
    ({"dedup_key": "\x00"}, 'dedup_key is "\\u0000": must be a string of 1 to 512'),
    ({"dedup_key": 7}, "dedup_key is 7: must be a string of 1 to 512"),
    ({"on_duplicate": "nope"}, 'on_duplicate is "nope": must be keep, replace or error'),
    ({"on_duplicate": None}, "on_duplicate is None: must be keep, replace or error"),
    (
        {"available_at": datetime(2026, 1, 1)},  # noqa: DTZ001
        "available_at is datetime.datetime(2026, 1, 1, 0, 0): must be a datetime with",
    ),
    ({"available_at": "2026-01-01"}, 'available_at is "2026-01-01": must be a datetime with a time zone'),
    ({"available_at": datetime.max.replace(tzinfo=UTC)}, "must lie in the years 2 to 9998"),
    (
        {"delay": timedelta(seconds=-1)},
        "delay is datetime.timedelta(days=-1, seconds=86399): must be a timedelta from 0",
    ),
    (
        {"delay": timedelta(days=3_651)},
        "delay is datetime.timedelta(days=3651): must be a timedelta from 0 to 3650 days",
    ),
    ({"delay": 5}, "delay is 5: must be a timedelta from 0 to 3650 days"),
    (
        {"delay": timedelta(), "available_at": datetime(2026, 1, 1, tzinfo=UTC)},
        "delay is datetime.timedelta(0): must be None where available_at is given",
    ),
    ({"max_attempts": 0}, "max_attempts is 0: must be an integer from 1 to 1000"),
    ({"max_attempts": 1_001}, "max_attempts is 1001: must be an integer from 1 to 1000"),
    ({"max_attempts": True}, "max_attempts is True: must be an integer from 1 to 1000"),
    ({"max_attempts": 3.0}, "max_attempts is 3.0: must be an integer from 1 to 1000"),
    ({"ordering_key": ""}, "ordering_key is 0 characters long: must be a string of 1 to 512 characters without NUL"),
    ({"ordering_key": "k" * 513}, "ordering_key is 513 characters long: must be a string of 1 to 512"),
    ({"ordering_key": 7}, "ordering_key is 7: must be a string of 1 to 512 characters"),
    ({"ordering_key": "a\x00"}, 'ordering_key is "a\\u0000": must be'),
    ({"ordering_key": "\ud800"}, "ordering_key is "),
]


@pytest.mark.parametrize(("changes", "told"), BAD, ids=[f"{next(iter(each))}-{n}" for n, (each, _) in enumerate(BAD)])
def test_a_bad_field_is_named_with_value_and_rule(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRow) as caught:
        parameters(replace(ROW, **changes))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert isinstance(caught.value, ValueError)
    assert caught.value.field.startswith(next(iter(changes)))


GOOD: list[dict[str, Any]] = [
    {"tenant_id": "x"},
    {"tenant_id": "ü" * 128, "kind": "org:42 a@b.c"},
    {"payload": None},
    {"payload": "x" * (MAX_PAYLOAD_BYTES - 2)},
    {"payload": "\\u0000"},
    {"payload": "\\\\u0000"},
    {"payload": {"\\u0000": ["\\"]}},
    {"payload": nested(50)},
    {"headers": {}, "dedup_key": "x" * 512},
    {"available_at": datetime(9998, 12, 31, tzinfo=UTC)},
    {"delay": timedelta(days=3_650)},
    {"max_attempts": 1},
    {"max_attempts": 1_000},
]


@pytest.mark.parametrize("changes", GOOD)
def test_values_at_the_bound_pass(changes: dict[str, Any]) -> None:
    row = replace(ROW, **changes)
    given = parameters(row)
    assert json.loads(given["payload"]) == row.payload


def test_the_limit_of_a_payload_can_be_lowered_and_not_raised() -> None:
    with pytest.raises(InvalidRow, match="payload is 12 bytes long as JSON text: must be at most 11 bytes"):
        parameters(replace(ROW, payload="x" * 10), max_payload_bytes=11)
    with pytest.raises(InvalidRow, match="must be at most 16777216 bytes"):
        parameters(replace(ROW, payload="x" * MAX_PAYLOAD_BYTES), max_payload_bytes=MAX_PAYLOAD_BYTES * 2)


@given(JSON)
def test_every_json_value_passes_unchanged(value: Any) -> None:
    assert json.loads(parameters(replace(ROW, payload=value))["payload"]) == value


@given(st.lists(st.sampled_from(["\\", "\x00", "u0000", "\\u0000", '"'])).map("".join))
def test_nul_is_found_and_nothing_else_is_taken_for_it(text: str) -> None:
    if "\x00" in text:
        with pytest.raises(InvalidRow, match="NUL"):
            parameters(replace(ROW, payload=[text]))
    else:
        assert json.loads(parameters(replace(ROW, payload=[text]))["payload"]) == [text]
