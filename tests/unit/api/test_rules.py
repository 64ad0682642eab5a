import sys
import unicodedata

import pytest

from tickkeeper.api.rules import PLAIN_TEXT, is_plain_text, matches


def test_plain_text_refuses_by_category_and_nothing_else():
    refused = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    wrong = [
        f"U+{point:04X}"
        for point in range(sys.maxunicode + 1)
        if is_plain_text(chr(point)) == (unicodedata.category(chr(point)) in refused)
    ]
    assert wrong == []


def test_plain_text_tells_both_judges_the_same_categories():
    for category in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp"):
        assert rf"\p{{{category}}}" in PLAIN_TEXT.cel
    assert PLAIN_TEXT.cel.count(r"\p{") == 6


@pytest.mark.parametrize(
    ("text", "holds"),
    [("ab", True), ("AB", True), ("ab\n", False), ("xab", False), ("abx", False), ("aB", True), ("", False)],
)
def test_matches_takes_the_whole_text_in_either_case(text, holds):
    assert matches("ab", "must be ab", ignore_case=True).holds(text) is holds


def test_ignoring_case_folds_ascii_only():
    assert not matches("sk", "must be sk", ignore_case=True).holds("\u017f\u212a")  # long s, Kelvin sign


def test_an_expression_with_a_quote_is_refused():
    with pytest.raises(ValueError, match="quote"):
        matches("a'b", "must be quoted")
