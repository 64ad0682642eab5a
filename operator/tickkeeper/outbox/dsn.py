"""A connection string that cannot leak: parsed once, and never part of a message."""

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tickkeeper.outbox.text import without_passwords

#: A shorter password would be found inside ordinary words: it is looked for where passwords stand.
_MIN_SEARCHED = 4


class Dsn:
    """A PostgreSQL connection string, as a URL or as ``key=value`` pairs."""

    def __init__(self, text: str) -> None:
        """ValueError when it cannot be parsed; libpq's own message is left out, since it quotes the string."""
        try:
            self._parts = conninfo_to_dict(text)
        except psycopg.Error:
            raise ValueError(
                "the database's connection string cannot be read: must be a postgresql:// URL (special characters "
                "in the password percent-encoded) or key=value pairs"
            ) from None

    def conninfo(self, **defaults: str | int) -> str:
        """The string for libpq, with ``defaults`` for what it does not say itself."""
        return make_conninfo("", **{**defaults, **self._parts})

    def scrub(self, text: str) -> str:
        """``text`` on one line and without the password."""
        line = " ".join(text.split())
        password = str(self._parts.get("password") or "")
        if len(password) >= _MIN_SEARCHED:
            line = line.replace(password, "***")
        elif password:
            line = re.sub(rf"(?<=password=){re.escape(password)}(?!\S)", "***", line)
        return without_passwords(line)

    def __repr__(self) -> str:
        """Nothing of the string."""
        return "Dsn(…)"
