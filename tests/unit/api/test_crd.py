import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from tickkeeper.api.crd import _structural as structural
from tickkeeper.api.crd import crd, crd_yaml
from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.api.tick import RESERVED_DATA_KEYS, TickOptions
from tickkeeper.cli.crd import crd as crd_command

CRD_FILE = Path(__file__).parents[3] / "crds" / "tickkeeper.dev_tickschedules.yaml"
VERSION = crd()["spec"]["versions"][0]
SPEC = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]
STATUS = VERSION["schema"]["openAPIV3Schema"]["properties"]["status"]


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from _fields(field, f"{path}.{name}")
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if inner is not None:
            yield f"{path}[]", inner
            yield from _fields(inner, f"{path}[]")


SPEC_FIELDS = dict(_fields(SPEC, "spec"))
ALL_FIELDS = SPEC_FIELDS | dict(_fields(STATUS, "status"))


def test_the_file_is_what_the_models_generate():
    assert CRD_FILE.read_text(encoding="utf-8") == crd_yaml(), "run: tickkeeper crd > crds/" + CRD_FILE.name


def test_the_text_says_what_the_data_say():
    assert yaml.safe_load(crd_yaml()) == crd()


def test_every_field_of_the_design_is_there():
    assert list(SPEC["properties"]) == [
        "tenant",
        "everyMs",
        "cron",
        "jobName",
        "queueName",
        "prefix",
        "schedulerId",
        "offsetMs",
        "suspend",
        "redis",
        "data",
        "tick",
        "concurrencyPolicy",
        "deletionPolicy",
    ]
    assert list(SPEC["properties"]["tick"]["properties"]) == ["kinds", "leaseMs", "batchSize", "timeBudgetMs"]
    assert list(STATUS["properties"]) == ["observedGeneration", "registered", "heals", "lastHeal", "conditions"]


@pytest.mark.parametrize("path", [path for path in ALL_FIELDS if not path.endswith("[]")])
def test_every_field_is_described_in_sentences(path):
    description = ALL_FIELDS[path]["description"]
    assert description.endswith(".")
    assert description[0].isupper()


@pytest.mark.parametrize("path", SPEC_FIELDS)
def test_every_field_of_the_spec_is_bounded(path):
    field = SPEC_FIELDS[path]
    bounds = {
        "string": {"maxLength"} if "enum" not in field else {"enum"},
        "integer": {"minimum", "maximum", "format"},
        "array": {"maxItems", "x-kubernetes-list-type"},
        "object": {"properties"} if "properties" in field else {"maxProperties"},
        "boolean": {"default"},
    }[field["type"]]
    assert bounds <= set(field)


def test_durations_say_their_unit_in_name_and_description():
    durations = [path for path, field in ALL_FIELDS.items() if path.endswith("Ms")]
    assert durations
    assert [path for path in durations if "milliseconds" not in ALL_FIELDS[path]["description"]] == []


def test_defaults_are_those_of_the_model():
    defaults = {path: field["default"] for path, field in ALL_FIELDS.items() if "default" in field}
    assert defaults == {
        "spec.cron.timeZone": "UTC",
        "spec.queueName": "ticks",
        "spec.prefix": "bull",
        "spec.suspend": False,
        "spec.concurrencyPolicy": "Forbid",
        "spec.deletionPolicy": "Delete",
    }


@pytest.mark.parametrize(("path", "field"), ALL_FIELDS.items())
def test_a_default_is_told_in_the_description_as_kubectl_explain_shows_no_other(path, field):
    told = re.search(r"Default: (.+)\.$", field.get("description", ""))
    assert (told and told[1]) == (json.dumps(field["default"]).strip('"') if "default" in field else None)


def test_every_rule_is_beside_the_field_that_it_concerns():
    assert SPEC["x-kubernetes-validations"] == [rule.to_crd() for rule in TickScheduleSpec.rules]
    rules = {
        path: len(field["x-kubernetes-validations"])
        for path, field in SPEC_FIELDS.items()
        if "x-kubernetes-validations" in field
    }
    assert rules == {
        "spec.tenant": 1,
        "spec.cron.pattern": 6,
        "spec.cron.timeZone": 1,
        "spec.jobName": 1,
        "spec.queueName": 2,
        "spec.prefix": 1,
        "spec.schedulerId": 4,
        "spec.redis.secretRef.name": 1,
        "spec.data": 1 + len(RESERVED_DATA_KEYS),
        "spec.tick.kinds[]": 1,
    }


def test_a_keyword_that_the_generator_does_not_know_is_not_dropped():
    with pytest.raises(ValueError, match="multipleOf"):
        structural({"type": "integer", "multipleOf": 5}, {})


def test_what_the_tick_carries_has_the_bounds_of_the_spec():
    wire = TickOptions.model_json_schema(by_alias=True)["properties"]
    for name, field in SPEC["properties"]["tick"]["properties"].items():
        carried = wire[name]["anyOf"][0]
        for bound in ("minimum", "maximum"):
            assert carried.get(bound) == field.get(bound), name
    assert wire["kinds"]["anyOf"][0]["items"]["maxLength"] == SPEC_FIELDS["spec.tick.kinds[]"]["maxLength"]


def test_the_resource_has_no_phase():
    assert [path for path in ALL_FIELDS if path.endswith(".phase")] == []


def test_conditions_merge_by_type():
    conditions = STATUS["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert set(conditions["items"]["required"]) == {"type", "status", "lastTransitionTime", "reason", "message"}


def test_names_and_columns():
    spec = crd()["spec"]
    assert spec["names"]["shortNames"] == ["tick", "ticks"]
    assert spec["names"]["categories"] == ["tickkeeper"]
    assert VERSION["subresources"] == {"status": {}}
    assert [path["jsonPath"] for path in VERSION["selectableFields"]] == [
        ".spec.tenant",
        ".spec.queueName",
        ".spec.suspend",
    ]
    columns = VERSION["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == [
        "Tenant", "Every", "Queue", "Ready", "Ticking", "Reason", "Heals", "Age",
    ]  # fmt: skip
    assert [column["name"] for column in columns if column.get("priority")] == ["Scheduler", "Last-Heal"]


def test_the_command_prints_the_file():
    app = typer.Typer()
    app.command()(crd_command)
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 0
    assert done.stdout == CRD_FILE.read_text(encoding="utf-8")
