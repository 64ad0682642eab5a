"""docs/configuration.md is what the settings say."""

from pathlib import Path

from scripts.configuration import render

ROOT = Path(__file__).parents[3]


def test_the_document_is_up_to_date() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == render(), "run: make configuration"
