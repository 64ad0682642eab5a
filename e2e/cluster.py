"""A kind cluster of this run alone, and what tests ask of it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from e2e.settings import Settings
from e2e.tools import Failed, run, say


class Cluster:
    """One kind cluster, reached by a kubeconfig of its own: the user's is never touched."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name = name
        self.kubeconfig = kubeconfig
        self._env = os.environ | {"KUBECONFIG": str(kubeconfig)}

    def create(self, settings: Settings) -> None:
        """Make it anew; one of this name that an earlier run left is removed."""
        self.delete()
        say(f"creating the kind cluster {self.name}")
        argv = [
            "kind",
            "create",
            "cluster",
            "--name",
            self.name,
            "--kubeconfig",
            str(self.kubeconfig),
            "--wait",
            "180s",
        ]
        if settings.node_image:
            argv += ["--image", settings.node_image]
        if settings.kind_config:
            argv += ["--config", settings.kind_config]
        run(*argv, seconds=600)

    def delete(self) -> None:
        """Remove it, if it is there."""
        run("kind", "delete", "cluster", "--name", self.name, "--kubeconfig", self.kubeconfig, check=False)

    def load(self, *images: str) -> None:
        """Bring images onto the nodes."""
        say(f"loading {', '.join(images)}")
        run("kind", "load", "docker-image", "--name", self.name, *images, seconds=600)

    def pull_where_absent(self, *images: str) -> None:
        """Have images on this machine, before they are loaded."""
        for image in images:
            if run("docker", "image", "inspect", image, check=False).returncode != 0:
                say(f"pulling {image}")
                run("docker", "pull", image, seconds=900)

    def kubectl(self, *argv: str, stdin: str = "", seconds: float = 120) -> str:
        """Run kubectl and return its standard output. Raises Failed."""
        return run("kubectl", *argv, stdin=stdin, seconds=seconds, env=self._env).stdout

    def try_kubectl(self, *argv: str, stdin: str = "", seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run kubectl, whatever comes of it."""
        return run("kubectl", *argv, stdin=stdin, seconds=seconds, env=self._env, check=False)

    def helm(self, *argv: str, stdin: str = "", seconds: float = 400) -> str:
        """Run helm and return its standard output. Raises Failed."""
        return run("helm", *argv, stdin=stdin, seconds=seconds, env=self._env).stdout

    def apply(self, *objects: dict[str, Any], namespace: str | None = None) -> None:
        """kubectl apply. Raises Failed with the API server's words."""
        where = ("--namespace", namespace) if namespace else ()
        self.kubectl("apply", *where, "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """One object; None where there is none."""
        where = ("--namespace", namespace) if namespace else ()
        done = self.try_kubectl("get", kind, name, *where, "-o", "json")
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout)
            return found
        if "NotFound" in done.stderr or "not found" in done.stderr:
            return None
        raise Failed(done.stderr.strip())

    def list(self, kind: str, namespace: str | None = None, labels: str = "") -> list[dict[str, Any]]:
        """Objects of a kind, of one namespace or all."""
        where = ("--namespace", namespace) if namespace else ("--all-namespaces",)
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *where, "-l", labels, "-o", "json"))["items"]
        return found

    def on_node(self, script: str) -> str:
        """Run a shell script on the (only) node."""
        return run("docker", "exec", f"{self.name}-control-plane", "sh", "-ec", script).stdout

    def kill_container(self, pod: str, namespace: str) -> None:
        """SIGKILL to the first process of a pod's container, as an OOM kill would send it."""
        found = self.get("pod", pod, namespace)
        assert found is not None, f"no pod {namespace}/{pod}"
        container = found["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        self.on_node(f"kill -9 $(crictl inspect -o go-template --template '{{{{.info.pid}}}}' {container})")
