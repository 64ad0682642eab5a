"""docs/conditions.md names exactly the conditions and reasons that there are."""

import re
from pathlib import Path

from tickkeeper.api.conditions import ConditionType, EventReason, Reason, Status

TEXT = (Path(__file__).parents[3] / "docs" / "conditions.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (True|False|Unknown) \| (\w+) \| (.+?) \| (.*?) ?\|$", TEXT, re.MULTILINE)


def test_every_reason_is_explained_and_no_other() -> None:
    assert {reason for _, reason, _, _ in ROWS} == set(Reason)


def test_every_condition_has_its_section() -> None:
    sections = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert {name for section in sections if section != "Events" for name in section.split(", ")} == set(ConditionType)


def test_whatever_is_false_comes_with_a_remedy() -> None:
    without = [reason for status, reason, _, remedy in ROWS if status == Status.FALSE and not remedy]
    assert without == [Reason.NOT_SUSPENDED]


def test_every_reason_of_an_event_is_named() -> None:
    words = set(re.findall(r"\w+", TEXT))
    assert set(EventReason) <= words
