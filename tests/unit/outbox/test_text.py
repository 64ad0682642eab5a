"""Error texts: what is stored of them."""

from hypothesis import given
from hypothesis import strategies as st

from tickkeeper.outbox.text import MAX_ERROR_LENGTH, clean_error


def test_what_postgres_refuses_is_replaced() -> None:
    assert clean_error("a\x00b\ud800c") == "a\N{REPLACEMENT CHARACTER}b?c"


def test_of_a_long_text_both_ends_are_kept() -> None:
    cleaned = clean_error("begin" + "x" * 10_000 + "end")
    assert len(cleaned) == MAX_ERROR_LENGTH
    assert cleaned.startswith("begin")
    assert cleaned.endswith("end")
    assert clean_error("x" * MAX_ERROR_LENGTH) == "x" * MAX_ERROR_LENGTH


def test_bound_parameters_are_left_out() -> None:
    text = (
        "(psycopg.errors.UniqueViolation) duplicate key\n[SQL: INSERT INTO t VALUES (%(a)s)]\n"
        "[parameters: {'a': 'secret [sic]',\n 'b': 'x'}]\n(Background on this error at: https://sqlalche.me/e/20/gkpj)"
    )
    cleaned = clean_error(text)
    assert "secret" not in cleaned
    assert cleaned.startswith("(psycopg.errors.UniqueViolation) duplicate key\n[SQL: INSERT INTO t VALUES (%(a)s)]\n")
    assert cleaned.endswith("(Background on this error at: https://sqlalche.me/e/20/gkpj)")
    assert clean_error("no [parameters: here") == "no [parameters: here"


def test_passwords_in_urls_are_left_out() -> None:
    text = "cannot reach https://user:pa%20ss@host/x or redis://:pw@h, see https://docs.example/a:b and mail a:b@c"
    assert clean_error(text) == (
        "cannot reach https://user:***@host/x or redis://:***@h, see https://docs.example/a:b and mail a:b@c"
    )


@given(st.text(st.characters(exclude_categories=[]), max_size=200))
def test_any_text_can_be_stored(text: str) -> None:
    cleaned = clean_error(text * 50)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert len(cleaned) <= MAX_ERROR_LENGTH
    assert clean_error(cleaned) == cleaned
