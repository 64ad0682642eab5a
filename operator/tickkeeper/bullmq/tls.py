"""TLS for Redis connections, from PEM texts instead of files."""

import ssl
import tempfile
from pathlib import Path
from typing import Any

from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import SentinelManagedConnection


class TlsConnection(SSLConnection):
    """A connection that uses a context made once."""

    def __init__(self, *, tls_context: ssl.SSLContext, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ssl_context.context = tls_context


class SentinelTlsConnection(SentinelManagedConnection, TlsConnection):
    """The same to whichever server the sentinels call the master."""


def context(ca_cert: str | None, client_cert: str | None, client_key: str | None) -> ssl.SSLContext:
    """A client's context that checks the server's certificate and name.

    All three are PEM texts. Raises ValueError with the Secret's key and the rule for what is none.
    """
    try:
        made = ssl.create_default_context(cadata=ca_cert)
    except (ssl.SSLError, ValueError):
        raise ValueError("ca.crt must be one or more certificates in PEM") from None
    if client_cert and client_key:
        # ssl loads a key only from a file: it lives for the length of this call, readable to us alone.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
            pem.write(f"{client_key}\n{client_cert}")
            pem.flush()
            try:
                made.load_cert_chain(Path(pem.name), password=_no_pass_phrase)
            except (ssl.SSLError, ValueError, OSError):
                raise ValueError(
                    "tls.crt and tls.key must be a certificate in PEM and its key, without a pass phrase"
                ) from None
    return made


def _no_pass_phrase() -> str:
    # Without it, ssl would ask at the terminal.
    raise ValueError("the key has a pass phrase")
