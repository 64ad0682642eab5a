"""A certificate authority for one test server, made with the openssl program."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from embedded.errors import MissingPart, PartFailed

_DAYS = "30"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Paths of a PEM certificate and its PEM private key (mode 0600)."""

    certificate: Path
    key: Path


def private_key(path: Path) -> Path:
    """A new P-256 private key in PEM form at ``path``, mode 0600."""
    path.touch(mode=0o600)
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
    return path


class Authority:
    """Signs certificates; everything lies in ``folder``, and ``certificate`` is what clients trust."""

    def __init__(self, folder: Path) -> None:
        """Make the authority's own key and certificate."""
        self._folder = folder
        self._key = private_key(folder / "ca.key")
        self.certificate = folder / "ca.crt"
        self._openssl_conf(
            "ca", "[dn]\nCN = tickkeeper-test-ca\n[v3]\nbasicConstraints = critical,CA:TRUE\nkeyUsage = keyCertSign\n"
        )
        _openssl(
            *("req", "-x509", "-new", "-sha256", "-days", _DAYS, "-key", self._key, "-out", self.certificate),
            *("-config", folder / "ca.conf", "-extensions", "v3"),
        )

    def server(self, name: str, *, hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> Certificate:
        """A certificate for a server that is reached as any of ``hosts`` (names or IPv4 addresses)."""
        kinds = ("IP" if host.replace(".", "").isdigit() else "DNS" for host in hosts)
        names = ",".join(f"{kind}:{host}" for kind, host in zip(kinds, hosts, strict=True))
        return self._sign(
            f"server-{name}", f"CN = {name}\n", f"extendedKeyUsage = serverAuth\nsubjectAltName = {names}\n"
        )

    def client(self, name: str, *, groups: tuple[str, ...] = ()) -> Certificate:
        """A certificate for a client: ``name`` as its common name, ``groups`` as its organizations."""
        organizations = "".join(f"{index}.O = {group}\n" for index, group in enumerate(groups))
        return self._sign(f"client-{name}", f"{organizations}CN = {name}\n", "extendedKeyUsage = clientAuth\n")

    def _sign(self, label: str, subject: str, extensions: str) -> Certificate:
        stem = quote(label, safe="")  # one-to-one, so that no two names share a file
        made = Certificate(self._folder / f"{stem}.crt", private_key(self._folder / f"{stem}.key"))
        conf = self._openssl_conf(stem, f"[dn]\n{subject}[v3]\n{extensions}")
        request = self._folder / f"{stem}.csr"
        _openssl("req", "-new", "-sha256", "-key", made.key, "-out", request, "-config", conf)
        _openssl(
            *("x509", "-req", "-sha256", "-days", _DAYS, "-in", request, "-out", made.certificate),
            *("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-extfile", conf, "-extensions", "v3"),
        )
        return made

    def _openssl_conf(self, stem: str, sections: str) -> Path:
        path = self._folder / f"{stem}.conf"
        path.write_text(f"[req]\nprompt = no\ndistinguished_name = dn\n{sections}", encoding="utf-8")
        return path


def _openssl(*args: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise MissingPart("no openssl program found, which makes the test servers' certificates: install openssl")
    done = subprocess.run(
        [program, *args],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath)},  # no OPENSSL_CONF of the user's
    )
    if done.returncode != 0:
        raise PartFailed(f"openssl {args[0]} failed (exit {done.returncode}): {done.stderr.strip()[-500:]}")
