"""A Redis of one test alone, in its namespace, with the Secret that names it."""

import base64
import json
from dataclasses import dataclass

from e2e import image
from e2e.cluster import Cluster
from e2e.settings import Settings


@dataclass
class OwnRedis:
    """Started by ``create``."""

    cluster: Cluster
    namespace: str
    settings: Settings
    name: str = "redis"

    @property
    def secret(self) -> str:
        """The Secret for spec.redis.secretRef."""
        return f"{self.name}-access"

    @property
    def host(self) -> str:
        """Its name within the cluster."""
        return f"{self.name}.{self.namespace}.svc"

    def create(self, *, password: str) -> None:
        """Start it and wait until it answers."""
        labels = {"app": self.name}
        container = {
            "name": "redis",
            "image": self.settings.redis_image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["redis-server", "--bind", "*", "--save", "", "--dir", "/tmp", "--requirepass", password],
            "readinessProbe": {"tcpSocket": {"port": 6379}, "periodSeconds": 1},
            "securityContext": {"runAsUser": image.user_of(self.settings.redis_image, "redis")},
        }
        pod = {
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        self.cluster.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": self.name, "labels": labels},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": self.name},
                "spec": {"selector": labels, "ports": [{"port": 6379}]},
            },
            namespace=self.namespace,
        )
        self.write_secret(password)
        self.cluster.kubectl("rollout", "status", f"deploy/{self.name}", "-n", self.namespace, "--timeout=90s")

    def write_secret(self, password: str) -> None:
        """The Secret, with this password."""
        data = {"url": f"redis://{self.host}:6379/0", "password": password}
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self.secret},
                "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
            },
            namespace=self.namespace,
        )

    def run(self, password: str, *command: str) -> str:
        """Run a Redis command."""
        script = f'REDISCLI_AUTH={json.dumps(password)} exec redis-cli "$@"'
        return self.cluster.kubectl(
            "exec", "-n", self.namespace, f"deploy/{self.name}", "--", "sh", "-c", script, "sh", *command
        ).strip()

    def delete(self) -> None:
        """Take it and its Secret away, for good."""
        self.cluster.kubectl("delete", "deploy,service", self.name, "-n", self.namespace, "--wait=true")
        self.cluster.kubectl("delete", "secret", self.secret, "-n", self.namespace)
