from collections import UserDict
from datetime import UTC, datetime

import pytest

from tests.unit.api.case import spec
from tickkeeper.api.errors import InvalidSpec
from tickkeeper.api.resource import (
    ADOPT_ANNOTATION,
    FINALIZER,
    PAUSED_ANNOTATION,
    ResourceMeta,
    TickSchedule,
)
from tickkeeper.api.status import TickScheduleStatus

METADATA = {
    "name": "drain",
    "namespace": "shop",
    "uid": "7d6e2a6c-9a38-4d4e-9a7e-0c3f7f6f4a11",
    "generation": 3,
    "resourceVersion": "12345",
    "creationTimestamp": "2026-02-03T04:05:06Z",
    "managedFields": [{"manager": "kubectl"}],
}


def body(**changes):
    return {
        "apiVersion": "tickkeeper.dev/v1alpha1",
        "kind": "TickSchedule",
        "metadata": METADATA,
        "spec": spec(),
    } | changes


def test_a_stored_resource_is_read():
    schedule = TickSchedule.parse(body())
    assert schedule.metadata == ResourceMeta(
        name="drain",
        namespace="shop",
        uid=METADATA["uid"],
        generation=3,
        resource_version="12345",
        creation_timestamp=datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
    )
    assert schedule.spec.tenant == "acme"
    assert schedule.status == TickScheduleStatus()


def test_mappings_of_any_kind_are_read():
    given = UserDict(body(metadata=UserDict(METADATA), spec=UserDict(spec(tick=UserDict({"batchSize": 5})))))
    assert TickSchedule.parse(given).spec.tick.batch_size == 5


@pytest.mark.parametrize("broken", [None, 5, [], "x", {}, {"tenant": 5}])
def test_metadata_and_status_are_read_whatever_the_spec_is(broken):
    given = body(spec=broken, status={"heals": 2})
    with pytest.raises(InvalidSpec):
        TickSchedule.parse(given)
    assert ResourceMeta.parse(given).uid == METADATA["uid"]
    assert TickScheduleStatus.parse(given["status"]).heals == 2


def test_an_absent_spec_is_told():
    given = body()
    del given["spec"]
    with pytest.raises(InvalidSpec, match=r"^spec: is required$"):
        TickSchedule.parse(given)


def test_a_manifest_that_was_never_stored_is_read():
    meta = ResourceMeta.parse({"metadata": {"name": "drain", "annotations": None}})
    assert (meta.namespace, meta.uid, meta.generation, meta.resource_version) == ("", "", 0, "")
    assert meta.creation_timestamp is None


def test_a_body_without_a_name_is_no_resource():
    with pytest.raises(ValueError, match="name"):
        ResourceMeta.parse({})


def meta(**changes):
    return ResourceMeta.parse({"metadata": METADATA | changes})


def test_deleting():
    assert not meta().deleting
    assert meta(deletionTimestamp="2026-02-03T04:05:06Z").deleting


def test_finalized():
    assert not meta(finalizers=["example.com/other"]).finalized
    assert meta(finalizers=["example.com/other", FINALIZER]).finalized


@pytest.mark.parametrize(
    ("value", "says"), [("true", True), ("false", False), ("True", False), ("", False), ("1", False)]
)
def test_annotations_say_true_in_one_way(value, says):
    assert meta(annotations={PAUSED_ANNOTATION: value}).paused is says
    assert meta(annotations={ADOPT_ANNOTATION: value}).adopts is says


def test_no_annotation_says_no():
    assert not meta().paused
    assert not meta().adopts


def test_names_are_those_that_users_and_clusters_hold():
    assert FINALIZER == "tickkeeper.dev/scheduler"
    assert PAUSED_ANNOTATION == "tickkeeper.dev/paused"
    assert ADOPT_ANNOTATION == "tickkeeper.dev/adopt"
