"""The quick histogram says what prometheus_client's own would say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from tickkeeper.telemetry.histogram import QuickHistogram

BUCKETS = (0.001, 0.5, 1, 30)


@given(st.lists(st.tuples(st.sampled_from(["mail.*", 'od"d'.replace('"', "'")]), st.floats(0, 100)), max_size=30))
def test_it_reads_as_the_librarys_own(observations):
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    quick = QuickHistogram("took_seconds", "How long.", "kind", BUCKETS, registry=ours)
    plain = Histogram("took_seconds", "How long.", ("kind",), buckets=BUCKETS, registry=theirs)
    for kind, seconds in observations:
        quick.of(kind)(seconds)
        if seconds > 50:
            quick.fold()
        plain.labels(kind).observe(seconds)

    def values(registry):
        return {
            (each.name, *sorted(each.labels.items())): each.value
            for metric in registry.collect()
            for each in metric.samples
            if not each.name.endswith("_created")
        }

    # A sum depends on the order of its terms in the last digits.
    assert values(ours) == pytest.approx(values(theirs))
    assert [line for line in generate_latest(ours).decode().splitlines() if line.startswith("#")] == [
        line
        for line in generate_latest(theirs).decode().splitlines()
        if line.startswith("#") and "_created" not in line
    ]


def test_two_of_one_name_are_refused():
    registry = CollectorRegistry()
    QuickHistogram("took_seconds", "How long.", "kind", BUCKETS, registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        QuickHistogram("took_seconds", "How long.", "kind", BUCKETS, registry=registry)
