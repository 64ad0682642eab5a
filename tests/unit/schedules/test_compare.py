from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.schedules.samples import DATA, DESIRED, OPTS, record
from tickkeeper.schedules.compare import Difference, differences, is_number
from tickkeeper.schedules.desired import Cron, Every

CRON = replace(DESIRED, schedule=Cron("30 2 * * *", "Europe/Stockholm"))
CRON_RECORD = record(every=None, offset=None, pattern="30 2 * * *", tz="Europe/Stockholm")


def fields(desired, found):
    return [each.field for each in differences(desired, found)]


def test_the_wanted_record_has_no_difference():
    assert differences(DESIRED, record()) == ()
    assert differences(CRON, CRON_RECORD) == ()


@pytest.mark.parametrize("every", ["60000", "60000.0", "6e4", "6.0E+4", " 60000"])
def test_numbers_are_compared_as_numbers(every):
    assert differences(DESIRED, record(every=every)) == ()


@pytest.mark.parametrize(
    ("changes", "field", "found", "wanted"),
    [
        ({"every": "1234"}, "every", "1234", 60_000),
        ({"every": None}, "every", None, 60_000),
        ({"every": "soon"}, "every", "soon", 60_000),
        ({"every": "nan"}, "every", "nan", 60_000),
        ({"every": "inf"}, "every", "inf", 60_000),
        ({"offset": "0"}, "offset", "0", 12_345),
        ({"offset": None}, "offset", None, 12_345),
        ({"pattern": "* * * * *"}, "pattern", "* * * * *", None),
        ({"tz": "UTC"}, "tz", "UTC", None),
        ({"name": "other"}, "name", "other", "drain"),
        ({"name": None}, "name", None, "drain"),
        ({"bounds": {"limit": "5"}}, "limit", "5", None),
        ({"data": None}, "data", None, DATA),
        ({"data": [1]}, "data", [1], DATA),
        ({"data": {**DATA, "tenantId": "evil"}}, "data.tenantId", "evil", "acme"),
        ({"data": {**DATA, "more": 1}}, "data.more", 1, None),
        ({"data": {"tenantId": "acme"}}, "data.tickkeeper", None, {"name": "acme"}),
        ({"opts": {"attempts": 1}}, "opts.removeOnComplete", None, OPTS["removeOnComplete"]),
        ({"opts": {**OPTS, "attempts": 3}}, "opts.attempts", 3, 1),
    ],
)
def test_each_field_is_told_with_what_was_found_and_what_was_wanted(changes, field, found, wanted):
    assert differences(DESIRED, record(**changes)) == (Difference(field, found, wanted),)


def test_all_differences_are_told_the_weightiest_first():
    found = record(every="1", name="x", bounds={"limit": "1", "endDate": "2"}, data={}, opts={})
    assert fields(DESIRED, found) == [
        "every",
        "name",
        "endDate",
        "limit",
        "data.tenantId",
        "data.tickkeeper",
        "opts.attempts",
        "opts.removeOnComplete",
    ]


@pytest.mark.parametrize("offset", [None, "0", "77", "-1.5"])
def test_an_offset_means_nothing_beside_a_pattern(offset):
    assert differences(CRON, replace(CRON_RECORD, offset=offset)) == ()


@pytest.mark.parametrize("offset", ["", "x", "nan"])
def test_an_offset_that_is_no_number_breaks_bullmqs_scripts_and_must_go(offset):
    assert fields(CRON, replace(CRON_RECORD, offset=offset)) == ["offset"]


def test_patterns_and_zones_are_compared_as_text():
    assert fields(CRON, replace(CRON_RECORD, pattern="30  2 * * *", tz="europe/stockholm")) == ["pattern", "tz"]


def test_from_every_to_cron():
    assert fields(CRON, record()) == ["every", "pattern", "tz"]


def test_a_null_is_not_the_same_as_nothing():
    wanted = replace(DESIRED, data={"a": None})
    assert fields(wanted, record(data={})) == ["data.a"]
    assert fields(replace(DESIRED, data={}), record(data={"a": None})) == ["data.a"]


def test_iterations_are_no_difference():
    assert differences(DESIRED, record(iterations=99)) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_no_difference_means_equal(wanted, found):
    told = differences(replace(DESIRED, data=wanted), record(data=found))
    assert (told == ()) is (wanted == found)


@given(st.integers(10, 31_536_000_000))
def test_an_interval_equals_itself_however_it_is_written(every):
    wanted = replace(DESIRED, schedule=Every(every, 1))
    assert differences(wanted, record(every=str(every), offset="1")) == ()
    assert differences(wanted, record(every=repr(float(every)), offset="1")) == ()


def test_long_values_are_cut_and_nothing_is_named():
    assert str(Difference("data.a", "x" * 200, None)) == f"data.a: {'x' * 59}… -> (none)"


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", True), ("-1.5", True), ("1e3", True), ("", False), (None, False), ("1x", False), ("nan", False)],
)
def test_numbers(text, number):
    assert is_number(text) is number
