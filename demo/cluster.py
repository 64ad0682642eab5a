"""The Kubernetes API that the demo uses: the embedded one, or the cluster of the current kubeconfig."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Protocol

import yaml

from embedded.errors import MissingPart, PartFailed
from embedded.kubernetes import KubeApi
from embedded.kubernetes_assets import find_assets

_ROOT = Path(__file__).resolve().parent.parent
CRD = _ROOT / "crds" / "tickkeeper.dev_tickschedules.yaml"
RBAC = _ROOT / "deploy" / "rbac.yaml"

NAMESPACE = "tickkeeper-demo"
_OPERATOR = ("tickkeeper-system", "tickkeeper-operator")
_RESOURCE = "tickschedules.tickkeeper.dev"
_OLDEST_MINOR = 31  # selectableFields
#: On what the demo has made in a cluster of yours, so that it removes that and nothing else.
_LABEL = "tickkeeper.dev/demo"
_CLUSTER_KINDS = "clusterrolebindings,clusterroles,customresourcedefinitions,namespaces"
_NAMESPACED_KINDS = "rolebindings,roles,serviceaccounts"

Document = dict[str, Any]


class Cluster(Protocol):
    """A Kubernetes API. ``kubeconfig`` is the admin's, ``operator_kubeconfig`` that of the operator's own account."""

    name: str
    kubectl_path: Path
    kubeconfig: Path
    operator_kubeconfig: Path

    def prepare(self) -> None:
        """Get what is needed before anything starts: may build or download, and take minutes the first time."""

    def start(self) -> None:
        """Start or reach it, and install the CRD and the operator's account."""

    def try_kubectl(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as the admin, in the demo's namespace, and return its exit code and output."""

    def close(self) -> None:
        """End it, or remove from it what the demo has made."""


def kubectl(cluster: Cluster, *args: str, stdin: str = "") -> str:
    """What kubectl prints; PartFailed with its error."""
    done = cluster.try_kubectl(*args, stdin=stdin)
    if done.returncode != 0:
        raise PartFailed(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


class EmbeddedCluster:
    """etcd and kube-apiserver as processes of this machine, RBAC on."""

    def __init__(self) -> None:
        self._api = KubeApi()

    def prepare(self) -> None:
        """Build or download the binaries where this machine has none."""
        self.kubectl_path = self._api.assets / "kubectl"

    def start(self) -> None:
        """Start both servers and install what the operator needs."""
        self._api.start()
        self.name = f"Kubernetes {self._api.version}"
        self.kubeconfig = self._api.kubeconfig
        self._api.kubectl("create", "namespace", NAMESPACE)
        self._api.kubectl("apply", "--server-side", "-f", str(CRD), "-f", str(RBAC))
        self._api.kubectl("wait", "--for=condition=Established", f"crd/{_RESOURCE}", "--timeout=20s")
        self.operator_kubeconfig = self._api.service_account_kubeconfig(*_OPERATOR)

    def try_kubectl(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as the admin, in the demo's namespace, and return its exit code and output."""
        return self._api.try_kubectl("--namespace", NAMESPACE, *args, stdin=stdin)

    def close(self) -> None:
        """End both servers; their data go with them."""
        self._api.close()


class CurrentCluster:
    """The cluster that ``kubectl`` reaches now; the operator runs on this machine all the same.

    Everything that the demo makes in it bears a label, and goes at the end. It refuses a cluster in which another
    operator may be at work: two of them, each with its own Redis, would compete.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = False

    def prepare(self) -> None:
        """Find kubectl, and hold on to the current context: a later switch of it must not move the demo."""
        found = shutil.which("kubectl")
        self.kubectl_path = Path(found) if found else find_assets() / "kubectl"
        view = self._run({**os.environ}, "config", "view", "--minify", "--flatten", "--raw", "--output=json")
        if view.returncode != 0:
            raise MissingPart(f"CLUSTER=current: kubectl has no current context: {view.stderr.strip()}")
        self._config: Document = json.loads(view.stdout)
        self.kubeconfig = self._write("admin", self._config)
        self.name = f"cluster {self._config['contexts'][0]['context']['cluster']}"

    def start(self) -> None:
        """Reach it, check that it fits and is free, and install what the operator needs."""
        asked = self._run(self._env, "version", "--output=json", "--request-timeout=15s")
        if asked.returncode != 0:
            raise MissingPart(f"CLUSTER=current: {self.name} is not reachable: {asked.stderr.strip()}")
        version = json.loads(asked.stdout)["serverVersion"]
        if int(version["minor"].rstrip("+")) < _OLDEST_MINOR:
            raise MissingPart(f"{self.name} is Kubernetes {version['gitVersion']}: must be 1.{_OLDEST_MINOR} or newer")
        self.name = f"{self.name}, Kubernetes {version['gitVersion'].removeprefix('v')}"
        self._refuse_if_in_use()
        self._started = True
        self._remove_ours(wait=True)  # left by a demo that was killed
        self._install()
        self.operator_kubeconfig = self._operators_kubeconfig()

    def try_kubectl(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as the admin, in the demo's namespace, and return its exit code and output."""
        return self._run(self._env, "--namespace", NAMESPACE, *args, stdin=stdin)

    def close(self) -> None:
        """Remove from the cluster what the demo has made."""
        if self._started:
            self._remove_ours(wait=False)  # a namespace takes its time to go
            self._started = False

    @property
    def _env(self) -> dict[str, str]:
        return os.environ | {"KUBECONFIG": str(self.kubeconfig)}

    def _refuse_if_in_use(self) -> None:
        pods = kubectl(self, "get", "pods", "-A", "-l", "app.kubernetes.io/name=tickkeeper", "-o", "name")
        if pods.strip():
            raise MissingPart(
                f"{self.name} runs TickKeeper already, which the demo would compete with: use another one"
            )
        # Fails where the CRD is not installed, and then there is nothing in the way.
        listed = self.try_kubectl("get", _RESOURCE, "-A", "-o", "json")
        held = json.loads(listed.stdout)["items"] if listed.returncode == 0 else []
        if any(item["metadata"]["namespace"] != NAMESPACE for item in held):
            raise MissingPart(f"{self.name} holds TickSchedules that the demo's operator would take: use another one")

    def _install(self) -> None:
        namespace: Document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        for document in (namespace, *_documents(CRD), *_documents(RBAC)):
            metadata = document["metadata"]
            there = self.try_kubectl("get", document["kind"], metadata["name"], *_in(metadata), "-o", "name")
            if there.returncode != 0:  # what is there already is not ours to change, nor to remove
                metadata.setdefault("labels", {})[_LABEL] = "true"
                kubectl(self, "create", "-f", "-", *_in(metadata), stdin=json.dumps(document))
        kubectl(self, "wait", "--for=condition=Established", f"crd/{_RESOURCE}", "--timeout=20s")

    def _operators_kubeconfig(self) -> Path:
        namespace, name = _OPERATOR
        token = kubectl(self, "create", "token", name, "--namespace", namespace, "--duration=1h").strip()
        config = json.loads(json.dumps(self._config))
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        return self._write("operator", config)

    def _remove_ours(self, *, wait: bool) -> None:
        listed = self.try_kubectl("get", _RESOURCE, "-o", "name")
        for name in listed.stdout.split():
            # No operator is left to take its finalizer off.
            self.try_kubectl("patch", name, "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')
            self.try_kubectl("delete", name, "--ignore-not-found", "--wait=false")
        for kinds in (_CLUSTER_KINDS, _NAMESPACED_KINDS):
            where = ("--namespace", _OPERATOR[0], "--selector", _LABEL)
            waiting = ("--wait=true", "--timeout=90s") if wait else ("--wait=false",)
            self.try_kubectl("delete", kinds, *where, "--ignore-not-found", *waiting)

    def _write(self, name: str, config: Document) -> Path:
        path = self._folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def _run(self, env: dict[str, str], *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.kubectl_path, *args], env=env, input=stdin, capture_output=True, text=True, check=False, timeout=120
        )


def _documents(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def _in(metadata: Document) -> list[str]:
    return ["--namespace", metadata["namespace"]] if "namespace" in metadata else []
