"""Makes the text of an error fit to be stored."""

import re

MAX_ERROR_LENGTH = 4_096

_CUT = " … "
#: SQLAlchemy and others append the bound values of the statement that failed.
_PARAMETERS = re.compile(r"[ \t]*\[parameters: .*?\](?=\s*(?:$|\n|\())", re.DOTALL)
_CREDENTIALS = re.compile(r"(?<=://)([^\s/:@]*):[^\s/@]*@")


def without_passwords(text: str) -> str:
    """``text`` without the passwords of URLs."""
    return _CREDENTIALS.sub(r"\1:***@", text)


def clean_error(text: str) -> str:
    """``text`` without what PostgreSQL refuses (NUL, lone surrogates), bound parameters and passwords in URLs.

    At most MAX_ERROR_LENGTH characters: of a longer text its beginning and its end are kept, where the cause stands.
    """
    text = _PARAMETERS.sub(" [parameters left out]", text)
    text = without_passwords(text)
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    if len(text) <= MAX_ERROR_LENGTH:
        return text
    half = (MAX_ERROR_LENGTH - len(_CUT)) // 2
    return text[: MAX_ERROR_LENGTH - len(_CUT) - half] + _CUT + text[-half:]
