from pathlib import Path

import pytest
import yaml

from tickkeeper.api.resource import API_VERSION, KIND, TickSchedule
from tickkeeper.api.spec import TickScheduleSpec

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("tickschedule*.yaml"))


def _read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid(path):
    body = _read(path)
    assert (body["apiVersion"], body["kind"]) == (API_VERSION, KIND)
    TickSchedule.parse(body)


def test_examples_use_known_fields_only():
    known = {field.alias for field in TickScheduleSpec.model_fields.values()}
    for path in EXAMPLES:
        assert set(_read(path)["spec"]) <= known, path.name


def test_the_full_example_leaves_nothing_out():
    known = {field.alias for field in TickScheduleSpec.model_fields.values()}
    (full,) = (path for path in EXAMPLES if path.stem == "tickschedule-full")
    assert set(_read(full)["spec"]) == known - {"cron"}


def test_the_smallest_example_cannot_be_smaller():
    (minimal,) = (path for path in EXAMPLES if path.stem == "tickschedule")
    assert set(_read(minimal)["spec"]) == {"tenant", "jobName", "everyMs"}
