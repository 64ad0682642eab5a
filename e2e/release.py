"""The chart as a test installs it: with the trial's Redis and Postgres, and a worker that writes down what it did."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

import yaml

from e2e import image
from e2e.cluster import Cluster
from e2e.settings import CHART, FILES, Settings

# The trial's Redis knows its password by a file only.
_REDIS_CLI = 'REDISCLI_AUTH=$(cut -d" " -f2 /run/redis/redis.conf) exec redis-cli "$@"'
_PSQL = 'PGPASSWORD="$POSTGRES_PASSWORD" exec psql -h 127.0.0.1 -U postgres -d app -qAt -v ON_ERROR_STOP=1 -f -'


def values(settings: Settings) -> dict[str, Any]:
    """The values of an installation with everything in it."""
    repository, _, tag = settings.image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "secretRefs": {"enabled": True},
        "operator": {
            "deletionGraceSeconds": 5,
            # Every tick stays countable.
            "retention": {"completedCount": 200_000},
        },
        "trial": {
            "redis": {
                "enabled": True,
                "image": settings.redis_image,
                "runAsUser": image.user_of(settings.redis_image, "redis"),
            },
            "postgres": {
                "enabled": True,
                "image": settings.postgres_image,
                "runAsUser": image.user_of(settings.postgres_image, "postgres"),
            },
        },
        "workers": [
            {
                "name": "default",
                "queues": ["ticks", "rolling", "still"],
                "replicas": 2,
                "graceSeconds": 10,
                "concurrency": 50,
                "handlers": {"modules": ["e2e_handlers"], "configMap": "handlers"},
                "env": [
                    {
                        "name": "DELIVERIES_URL",
                        "valueFrom": {"secretKeyRef": {"name": "RELEASE-database", "key": "url"}},
                    }
                ],
            }
        ],
    }


@dataclass
class Release:
    """One installation."""

    cluster: Cluster
    name: str
    namespace: str
    values: dict[str, Any]
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def fullname(self) -> str:
        """The first part of its objects' names."""
        return self.name if "tickkeeper" in self.name else f"{self.name}-tickkeeper"

    def install(self, *flags: str) -> None:
        """Install and wait until everything is ready."""
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        handlers = {"e2e_handlers.py": (FILES / "e2e_handlers.py").read_text(encoding="utf-8")}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "handlers"}, "data": handlers}
        self.cluster.apply(config, namespace=self.namespace)
        started = time.monotonic()
        self.helm("install", str(CHART), "--wait", "--timeout", "300s", *flags)
        self.timings["install"] = time.monotonic() - started
        self.sql("CREATE TABLE IF NOT EXISTS deliveries (row_id bigint PRIMARY KEY, times int NOT NULL DEFAULT 1)")

    def upgrade(self, changes: dict[str, Any] | None = None, *, chart: str = str(CHART), wait: bool = True) -> None:
        """Upgrade with other values, laid over those of the installation."""
        flags = ["--wait", "--timeout", "300s"] if wait else []
        self.helm("upgrade", chart, *flags, more=changes or {})

    def helm(self, command: str, chart: str, *flags: str, more: dict[str, Any] | None = None) -> str:
        """helm install or upgrade with this release's values."""
        text = yaml.safe_dump(_merged(self.values, more or {})).replace("RELEASE-", f"{self.fullname}-")
        return self.cluster.helm(command, self.name, chart, "-n", self.namespace, "-f", "-", *flags, stdin=text)

    def uninstall(self) -> None:
        """Uninstall, if it is there, and wait for its hooks."""
        self.cluster.helm("uninstall", self.name, "-n", self.namespace, "--ignore-not-found", "--timeout", "180s")

    def redis(self, *command: str) -> str:
        """Run a Redis command."""
        return self.cluster.kubectl(
            *("exec", "-n", self.namespace, f"deploy/{self.fullname}-trial-redis", "-c", "redis", "--"),
            *("sh", "-c", _REDIS_CLI, "sh", *command),
        ).strip()

    def sql(self, script: str) -> str:
        """Run SQL and return what it prints, columns with | between."""
        pod = f"deploy/{self.fullname}-trial-postgres"
        return self.cluster.kubectl(
            "exec", "-i", "-n", self.namespace, pod, "--", "sh", "-c", _PSQL, stdin=script
        ).strip()

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Pods of a component that are not on their way out."""
        labels = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        found = self.cluster.list("pods", self.namespace, labels)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> str | None:
        """The name of the operator's pod that acts; None where none does."""
        lease = self.cluster.get("lease", f"{self.fullname}-operator", self.namespace)
        holder = (lease or {}).get("spec", {}).get("holderIdentity") or ""
        return next(
            (pod["metadata"]["name"] for pod in self.pods("operator") if pod["metadata"]["name"] in holder), None
        )

    def metrics(self, pod: str) -> str:
        """What a pod answers to a scrape."""
        return self.cluster.kubectl(
            "get", "--raw", f"/api/v1/namespaces/{self.namespace}/pods/{pod}:8080/proxy/metrics"
        )

    def rolled_out(self, what: str) -> None:
        """Wait until a Deployment is as it should be."""
        self.cluster.kubectl("rollout", "status", what, "-n", self.namespace, "--timeout", "180s", seconds=200)

    def ticks(self, queue: str) -> dict[str, list[int]]:
        """Scheduler id to the slots (Unix ms) whose ticks were completed, in order."""
        found: dict[str, list[int]] = {}
        for job in self.redis("ZRANGE", f"bull:{queue}:completed", "0", "-1").splitlines():
            if job.startswith("repeat:"):
                scheduler, _, slot = job.removeprefix("repeat:").rpartition(":")
                found.setdefault(scheduler, []).append(int(slot))
        return {scheduler: sorted(slots) for scheduler, slots in found.items()}


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both: dict[str, Any] = json.loads(json.dumps(below))
    for key, value in above.items():
        both[key] = _merged(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
    return both
