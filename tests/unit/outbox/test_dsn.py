"""Connection strings do not leak."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from tickkeeper.outbox import PostgresOutbox
from tickkeeper.outbox.dsn import Dsn


def test_defaults_yield_to_what_the_string_says() -> None:
    dsn = Dsn("postgresql://user:pw@host:5433/db?application_name=mine")
    parts = conninfo_to_dict(dsn.conninfo(application_name="ours", connect_timeout=5))
    assert (parts["application_name"], parts["connect_timeout"], parts["host"]) == ("mine", "5", "host")
    assert parts["password"] == "pw"
    assert "options" not in parts


def test_both_forms_are_read() -> None:
    assert "host=h" in Dsn("host=h password='a b'").conninfo()


@pytest.mark.parametrize("text", ["postgresql://u:verysecret%zz@h/x", "verysecret", "password=verysecret verysecret"])
def test_an_unreadable_string_is_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="connection string cannot be read: must be a postgresql:// URL") as caught:
        Dsn(text)
    assert "verysecret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_nothing_shows_the_password() -> None:
    dsn = Dsn("postgresql://user:verysecret@host/db")
    assert "verysecret" not in repr(dsn)
    assert dsn.scrub("could not\n  use verysecret") == "could not use ***"
    assert Dsn("host=h").scrub("a b") == "a b"
    short = Dsn("postgresql://user:a@host/db")
    assert short.scrub("permission denied for table") == "permission denied for table"
    assert short.scrub("of postgresql://user:a@host/db") == "of postgresql://user:***@host/db"
    assert short.scrub("of host=h password=a dbname=a") == "of host=h password=*** dbname=a"
    store = PostgresOutbox("postgresql://user:verysecret@host/db")
    assert "verysecret" not in f"{store!r} {vars(store)!r}"
