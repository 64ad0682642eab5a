"""Taking credentials out of text before it is logged, stored or shown.

Two nets: the forms in which credentials appear (URLs, DSNs, ``password=``, bearer tokens), and the values that this
process was given, whatever form they appear in. The first misses odd forms, the second misses what we never knew.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

MASK = "***"

# A shorter value would be found inside ordinary words, and the log would be unreadable without being safer.
_MIN_SECRET = 4

# What is longer is cut: the patterns are not made for a payload of megabytes, and nobody reads that in a log.
_MOST = 16_384
#: A secret that lies across the cut is in no form that a pattern knows: so much of the end goes too.
_EDGE = 4_096
_BOUND = "[parameters: "
#: Members of a group of exceptions that are told.
_MOST_LEAVES = 3

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # user:password@ of a URL. Greedy and across '/', since a raw password may hold anything; a port is no password.
    (
        re.compile(
            r"(?P<head>\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://)[^\s:/?#@'\"<>]*:(?!\d{1,5}(?:[/?#\s'\"]|$))[^\s'\"<>]*@"
        ),
        rf"\g<head>{MASK}@",
    ),
    (re.compile(r"(?P<head>\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://)[^\s/?#'\"<>]*@"), rf"\g<head>{MASK}@"),
    (
        re.compile(
            r"(?P<head>\b(?:[\w-]{0,60}(?:password|passwd|passphrase|secret|token|api[_-]?key)|pwd|authorization)"
            r"['\"]?\s*[=:]\s*)(?P<value>'[^']*'|\"[^\"]*\"|(?:(?:bearer|basic)\s+)?[^\s'\"&,;)}\]]+)",
            re.IGNORECASE,
        ),
        rf"\g<head>{MASK}",
    ),
    (re.compile(r"(?P<head>\b(?:bearer|basic)\s+)[A-Za-z0-9+/_.~=-]{8,}", re.IGNORECASE), rf"\g<head>{MASK}"),
    # Database drivers append what was bound to a statement: the payload, in a text that more people may read.
    (re.compile(r"\[parameters: (?:[^\n]*\]|.*?\](?=\s|$))", re.DOTALL), "[parameters]"),
)

_SENSITIVE_KEY = re.compile(
    r"password|passwd|secret|token|authorization|api_?key|private_?key|credential", re.IGNORECASE
)


class Redactor:
    """Masks credentials; it learns the values that must never be seen."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Add secret values; of a URL or DSN with credentials, its password too."""
        forms = set(self._secrets)
        for secret in secrets:
            passwords = _passwords_in(secret)
            # An address without credentials is what a log should name.
            whole = () if "://" in secret and not passwords else (secret,)
            for value in (*whole, *passwords):
                forms |= {form for form in _forms(value) if len(form) >= _MIN_SECRET}
        # Longest first: a secret that holds another one is masked whole.
        self._secrets = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def text(self, text: str) -> str:
        """``text`` without credentials, cut where it is longer than 16,384 characters."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        cut = len(text) > _MOST
        text = text[:_MOST]
        for pattern, masked in _PATTERNS:
            text = pattern.sub(masked, text)
        # What had no end before the cut was not recognized.
        return f"{text[:-_EDGE].partition(_BOUND)[0]}…" if cut else text

    def value(self, value: Any, *, key: str = "") -> Any:
        """The same for anything that is logged: containers are walked, unknown objects are shown by ``repr``."""
        if isinstance(value, bool | int | float) or value is None:
            return value
        if key and _SENSITIVE_KEY.search(key):
            return MASK
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(item, key=str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item) for item in value]
        if isinstance(value, BaseException):
            return self.text(describe(value))
        try:
            return self.text(repr(value))
        except Exception:  # noqa: BLE001 - a broken repr must not cost the log line
            return f"<{type(value).__name__}>"


def describe(error: BaseException) -> str:
    """``Type: message`` of an exception; never raises, even where its ``__str__`` does."""
    if isinstance(error, BaseExceptionGroup):
        # A TaskGroup's own words say nothing.
        leaves = list(_leaves(error))
        told = "; ".join(map(describe, leaves[:_MOST_LEAVES]))
        more = f" (and {len(leaves) - _MOST_LEAVES} more)" if len(leaves) > _MOST_LEAVES else ""
        return f"{type(error).__name__}: {told}{more}"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - somebody else's exception class
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _passwords_in(secret: str) -> list[str]:
    """The password inside a URL or a libpq key=value string, raw and decoded."""
    found: list[str] = []
    try:
        password = urlsplit(secret).password
    except ValueError:
        password = None
    if password:
        found += [password, unquote(password)]
    found += [
        (quoted or plain).replace("\\'", "'").replace("\\\\", "\\")
        for quoted, plain in re.findall(r"\bpassword\s*=\s*(?:'((?:\\.|[^'])*)'|([^\s&]+))", secret)
    ]
    return found


def _forms(value: str) -> set[str]:
    """How one value may be spelled: raw, percent-encoded, inside JSON, inside ``repr``."""
    return {value, quote(value, safe=""), json.dumps(value)[1:-1], repr(value)[1:-1]}


#: The process's own redactor: settings teach it, logs and stored error texts use it.
redactor = Redactor()


def redact(text: str) -> str:
    """``text`` without credentials, by the process's own redactor."""
    return redactor.text(text)
