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
        quick.observe(kind, seconds)
        plain.labels(kind).observe(seconds)

    def lines(registry):
        return sorted(line for line in generate_latest(registry).decode().splitlines() if "_created" not in line)

    assert lines(ours) == lines(theirs)


def test_two_of_one_name_are_refused():
    registry = CollectorRegistry()
    QuickHistogram("took_seconds", "How long.", "kind", BUCKETS, registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        QuickHistogram("took_seconds", "How long.", "kind", BUCKETS, registry=registry)
