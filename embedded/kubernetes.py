"""A Kubernetes API: etcd and kube-apiserver, RBAC on. No controllers, no scheduler, no nodes."""

import base64
import http.client
import json
import os
import ssl
import subprocess
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from embedded.certificates import Authority, private_key
from embedded.errors import PartFailed
from embedded.kubernetes_assets import asset_version, prepare_assets
from embedded.ports import free_port
from embedded.process import Process, make_folder, remove_folder

_ISSUER = "https://kubernetes.default.svc.cluster.local"

_Flags = dict[str, str | int | Path]


class KubeApi:
    """One API server on 127.0.0.1 with an etcd of its own.

    As no controller runs, a deleted namespace stays Terminating for ever and nothing is garbage-collected: take a new
    namespace for each test instead. ``kill``, ``restart`` and ``freeze`` are the API server's; its data stay in etcd.
    """

    def __init__(self, *, port: int | None = None, flags: tuple[str, ...] = ()) -> None:
        """Describe the server; ``flags`` are further ones of kube-apiserver. Nothing is started or looked for yet."""
        self.port = port or free_port()
        self._flags = flags
        self._folder: Path | None = None
        self._etcd: Process | None = None
        self._api: Process | None = None

    @cached_property
    def assets(self) -> Path:
        """The folder of kube-apiserver, etcd and kubectl; they are downloaded or built where this machine has none."""
        return prepare_assets()

    @property
    def version(self) -> str:
        """E.g. ``1.36.3 (etcd 3.6.16)``."""
        return asset_version(self.assets)

    @property
    def url(self) -> str:
        """``https://127.0.0.1:port``."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of kube-apiserver."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """True from start until kube-apiserver has ended, frozen or not."""
        return self._api is not None and self._api.running

    @cached_property
    def kubeconfig(self) -> Path:
        """A kubeconfig file of a cluster admin."""
        return self.user("admin", groups=("system:masters",))

    @cached_property
    def certificate_authority(self) -> Path:
        """The PEM certificate that signs the server's own and all clients' certificates."""
        return self._authority.certificate

    def user(self, name: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig file for a user who may do what RBAC grants to ``name`` and ``groups``, nothing by itself."""
        made = self._authority.client(name, groups=groups)
        return self._write_kubeconfig(
            name, {"client-certificate-data": _base64(made.certificate), "client-key-data": _base64(made.key)}
        )

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig file with a token (24 h) of a service account; it and its namespace are made where absent."""
        self._create_if_absent("namespace", namespace)
        self._create_if_absent("serviceaccount", name, "--namespace", namespace)
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "24h").strip()
        return self._write_kubeconfig(f"{namespace}.{name}", {"token": token}, namespace=namespace)

    def kubectl(self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl as the admin (or as ``kubeconfig`` says) and return what it prints; PartFailed with its error."""
        done = self.try_kubectl(*args, stdin=stdin, kubeconfig=kubeconfig)
        if done.returncode != 0:
            raise PartFailed(f"kubectl {' '.join(args)} (exit {done.returncode}): {done.stderr.strip()}")
        return done.stdout

    def try_kubectl(
        self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return its exit code and output, whatever they are."""
        assert self._folder is not None, "the API server was not started"
        return subprocess.run(
            [self.assets / "kubectl", *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            input=stdin or "",
            # HOME: kubectl keeps a discovery cache, which must not be the user's.
            env=os.environ | {"KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": str(self._folder)},
        )

    def start(self) -> Self:
        """Start etcd where it is not running, then kube-apiserver, and return once that says it is ready."""
        if self._folder is None:
            self._folder = make_folder("kubernetes")
            self._make_secrets(self._folder)
        if self._etcd is None:
            self._etcd = self._describe_etcd(self._folder)
        if not self._etcd.running:
            self._etcd.start()
        self._api = self._describe_api_server(self._folder)
        self._api.start()
        self._api.wait_until(self._ready, seconds=120)
        return self

    def stop(self) -> None:
        """Stop kube-apiserver, then etcd; data are kept. Idempotent."""
        for process in (self._api, self._etcd):
            if process is not None:
                process.stop()

    def close(self) -> None:
        """Stop and remove its data. Idempotent."""
        self.stop()
        self._etcd = None
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None
            for name in ("kubeconfig", "certificate_authority", "_authority", "_context"):
                self.__dict__.pop(name, None)

    def kill(self) -> None:
        """SIGKILL kube-apiserver; ``start`` brings it back on the same port with the same data."""
        self._running().kill()

    def restart(self, *, kill: bool = False) -> None:
        """End kube-apiserver (SIGTERM, or SIGKILL) and start it on the same port with the same data."""
        if kill:
            self.kill()
        else:
            self._running().stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP kube-apiserver: connections stay open, nothing answers."""
        self._running().freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._running().thaw()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop and remove."""
        self.close()

    @cached_property
    def _authority(self) -> Authority:
        assert self._folder is not None, "the API server was not started"
        return Authority(self._folder)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """Trusts this server alone; readiness is open to anonymous clients."""
        return ssl.create_default_context(cafile=self.certificate_authority)

    def _running(self) -> Process:
        if self._api is None:
            raise RuntimeError("kube-apiserver was not started")
        return self._api

    def _make_secrets(self, folder: Path) -> None:
        private_key(folder / "service-accounts.key")
        self._serving = self._authority.server("kube-apiserver")

    def _describe_etcd(self, folder: Path) -> Process:
        self._etcd_url = f"http://127.0.0.1:{free_port()}"
        peers = f"http://127.0.0.1:{free_port()}"
        flags: _Flags = {
            "data-dir": folder / "etcd",
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "log-level": "warn",
        }
        # Without fsync data survive a SIGKILL, not a power failure; waiting for the disk is most of a slow start.
        argv: list[str | Path] = [self.assets / "etcd", "--unsafe-no-fsync", *_flags(flags)]
        return Process(argv, log=folder / "etcd.log", cwd=folder)

    def _describe_api_server(self, folder: Path) -> Process:
        flags: _Flags = {
            "etcd-servers": self._etcd_url,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self.port,
            "tls-cert-file": self._serving.certificate,
            "tls-private-key-file": self._serving.key,
            "client-ca-file": self.certificate_authority,
            "service-account-issuer": _ISSUER,
            "service-account-key-file": folder / "service-accounts.key",
            "service-account-signing-key-file": folder / "service-accounts.key",
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            # No controller makes the default service accounts that this one would wait for.
            "disable-admission-plugins": "ServiceAccount",
            "profiling": "false",
        }
        argv: list[str | Path] = [self.assets / "kube-apiserver", *_flags(flags), *self._flags]
        return Process(argv, log=folder / "kube-apiserver.log", cwd=folder)

    def _ready(self) -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=2, context=self._context)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _create_if_absent(self, kind: str, name: str, *args: str) -> None:
        done = self.try_kubectl("create", kind, name, *args)
        if done.returncode != 0 and "already exists" not in done.stderr:
            raise PartFailed(f"kubectl create {kind} {name}: {done.stderr.strip()}")

    def _write_kubeconfig(self, name: str, credentials: dict[str, str], *, namespace: str = "default") -> Path:
        assert self._folder is not None
        cluster = {"server": self.url, "certificate-authority-data": _base64(self.certificate_authority)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": name, "namespace": namespace}}
            ],
            "current-context": "embedded",
        }
        path = self._folder / f"{quote(name, safe='')}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")  # JSON is YAML
        return path


def _flags(flags: _Flags) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
