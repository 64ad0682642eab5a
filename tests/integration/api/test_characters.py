"""The character rule of names: the API server's RE2 and our Unicode tables, code point by code point."""

import sys
import unicodedata
from collections.abc import Iterator, Sequence

import pytest

from tests.integration.api.judging import Judge
from tests.unit.api.case import spec
from tests.unit.api.spec_cases import PLAIN
from tickkeeper.api.rules import is_plain_text

#: As many names as a list of kinds holds, each as long as a name may be.
KINDS, LENGTH = 100, 128


def _code_points(*categories: str) -> list[str]:
    return [char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) in categories]


def _batches(chars: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (chars[start : start + size] for start in range(0, len(chars), size))


def test_every_assigned_character_that_is_plain_passes(judge: Judge):
    """All of them, some 140,000. Unassigned ones are left out: the two tables may be of different years."""
    plain = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if is_plain_text(char) and unicodedata.category(char) != "Cn"
    ]
    assert len(plain) > 100_000
    for batch in _batches(plain, KINDS * LENGTH):
        kinds = ["".join(name) for name in _batches(batch, LENGTH)]
        assert judge(spec(tick={"kinds": kinds})).message == ""


@pytest.mark.parametrize("category", ["Cc", "Cf", "Co", "Zl", "Zp"])
def test_every_character_of_a_refused_category_is_refused(judge: Judge, category: str):
    refused = _code_points(category)
    if category == "Co":
        refused = [*refused[:50], *refused[-50:]]  # private use: three ranges, 137,468 alike
    assert not any(map(is_plain_text, refused))
    for batch in _batches(refused, KINDS):
        answer = judge(spec(tick={"kinds": [f"a{char}b" for char in batch]}))
        blamed = {field for field, text in answer.refusals if PLAIN in text}
        assert blamed == {f"spec.tick.kinds[{index}]" for index in range(len(batch))}


@pytest.mark.parametrize("char", ["\u0378", "\U000e0fff", "\uffff", "\U0001fffe"])
def test_unassigned_characters_pass_whatever_year_the_tables_are_of(judge: Judge, char: str):
    assert unicodedata.category(char) == "Cn"
    assert is_plain_text(char)
    assert judge(spec(tenant=char)).message == ""


def test_a_lone_surrogate_never_reaches_the_operator(judge: Judge):
    """No valid text: the API server's JSON reader replaces it by U+FFFD before any rule."""
    stored = judge(spec(tenant="a\ud800b")).stored
    assert stored is not None
    assert stored["spec"]["tenant"] == "a\ufffdb"
