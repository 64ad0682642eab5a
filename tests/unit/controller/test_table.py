import pytest

from tickkeeper.controller.table import Entry, Table
from tickkeeper.schedules.desired import ResourceKey

KEY = ResourceKey("apps", "acme")
METADATA = {"name": "acme", "namespace": "apps", "uid": "uid-1", "generation": 1, "resourceVersion": "100"}
SPEC = {"tenant": "acme", "jobName": "drain", "everyMs": 60_000}


def entry(spec=SPEC, status=None, **metadata):
    return Entry.read({"metadata": {**METADATA, **metadata}, "spec": spec, "status": status})


@pytest.fixture
def table():
    table = Table()
    assert table.put(entry())
    return table


def test_a_new_resource_is_news(table):
    assert table.get(KEY) == entry()
    assert len(table) == 1
    assert [each.key for each in table] == [KEY]


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": 2},
        {"deletionTimestamp": "2026-02-03T04:05:06Z"},
        {"finalizers": ["tickkeeper.dev/scheduler"]},
        {"annotations": {"tickkeeper.dev/paused": "true"}},
        {"annotations": {"tickkeeper.dev/adopt": "true"}},
        {"uid": "uid-2"},
        {"spec": {**SPEC, "everyMs": "soon"}},
    ],
)
def test_what_decides_is_news(table, changes):
    assert table.put(entry(resourceVersion="101", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"status": {"heals": 5}},
        {"labels": {"a": "b"}},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x"}},
        {"managedFields": [{"manager": "kubectl"}]},
    ],
)
def test_what_decides_nothing_is_kept_without_a_word(table, changes):
    newer = entry(resourceVersion="101", **changes)
    assert not table.put(newer)
    assert table.get(KEY) == newer


def test_an_older_version_is_ignored(table):
    newer = entry(resourceVersion="1000", generation=3)
    assert table.put(newer)
    assert not table.put(entry(resourceVersion="999", generation=2))
    assert table.get(KEY) == newer


def test_a_recreated_resource_is_newer_whatever_its_version(table):
    assert table.put(entry(uid="uid-2", resourceVersion="5"))
    assert table.get(KEY).meta.uid == "uid-2"


def test_versions_that_are_no_numbers_are_taken_as_they_come(table):
    assert not table.put(entry(resourceVersion="abc"))
    assert table.put(entry(resourceVersion="abb", generation=2))


def test_what_was_deleted_is_forgotten(table):
    assert table.drop(KEY, "uid-1") == entry()
    assert table.get(KEY) is None
    assert table.drop(KEY, "uid-1") is None


def test_a_late_word_of_an_earlier_deletion_does_no_harm(table):
    table.put(entry(uid="uid-2"))
    assert table.drop(KEY, "uid-1") is None
    assert table.get(KEY).meta.uid == "uid-2"


def test_the_table_may_change_while_it_is_walked(table):
    for each in table:
        table.drop(each.key, "uid-1")
    assert len(table) == 0


def test_an_invalid_spec_is_kept_as_its_fault():
    read = entry({**SPEC, "everyMs": 5})
    assert read.spec is None
    assert "spec.everyMs" in str(read.fault)
    assert read.secret is None
    assert read.deletion_policy == "Delete"


def test_another_fault_of_an_invalid_spec_is_news():
    table = Table()
    table.put(entry({**SPEC, "everyMs": 5}))
    assert not table.put(entry({**SPEC, "everyMs": 5}))
    assert table.put(entry({**SPEC, "everyMs": 6}))


def test_what_an_entry_says():
    read = entry({**SPEC, "redis": {"secretRef": {"name": "r"}}, "deletionPolicy": "Retain"}, status={"heals": 2})
    assert read.key == KEY
    assert read.secret == ("apps", "r")
    assert read.deletion_policy == "Retain"
    assert read.status.heals == 2
    assert entry().secret is None
    assert entry(status="odd").status.heals == 0


def test_a_body_without_a_name_is_no_resource():
    with pytest.raises(ValueError, match="name"):
        Entry.read({"metadata": {}})


def test_what_names_a_secret_is_listed_as_long_as_it_does(table):
    assert list(table.with_secrets()) == []
    table.put(entry({**SPEC, "redis": {"secretRef": {"name": "redis"}}}, resourceVersion="101", generation=2))
    assert list(table.with_secrets()) == [(KEY, ("apps", "redis"))]
    table.put(entry(resourceVersion="102", generation=3))
    assert list(table.with_secrets()) == []
    table.put(entry({**SPEC, "redis": {"secretRef": {"name": "redis"}}}, resourceVersion="103", generation=4))
    table.drop(KEY, "uid-1")
    assert list(table.with_secrets()) == []


def test_what_was_dropped_does_not_come_back(table):
    """A page of a list, or the answer to a write, that was read before the deletion."""
    table.drop(KEY, "uid-1")
    assert not table.put(entry(resourceVersion="2000", generation=9))
    assert table.get(KEY) is None
    assert table.put(entry(uid="uid-2"))
    assert not table.put(entry(resourceVersion="2000", generation=9))
    assert table.get(KEY).meta.uid == "uid-2"


def test_of_two_that_had_one_name_the_one_made_later_stays(table):
    """Whether or not anybody told of the deletion between them."""
    first = entry(creationTimestamp="2026-01-01T00:00:00Z", uid="a")
    second = entry(creationTimestamp="2026-01-01T00:00:05Z", uid="b")
    assert table.put(first)
    assert table.put(second)
    assert not table.put(first)
    assert table.get(KEY) == second


def test_the_memory_of_what_is_gone_is_bounded(table, monkeypatch):
    monkeypatch.setattr("tickkeeper.controller.table._MOST_GONE", 2)
    for uid in ("a", "b", "c"):
        table.drop(KEY, uid)
    assert not table.put(entry(uid="c"))
    assert table.put(entry(uid="a"))
