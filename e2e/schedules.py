"""TickSchedules as tests make them."""

from dataclasses import dataclass
from typing import Any

from e2e.cluster import Cluster
from embedded.process import wait_for


@dataclass
class Schedules:
    """The TickSchedules of one namespace."""

    cluster: Cluster
    namespace: str

    def apply(self, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        """Make or change one. Raises Failed with the API server's words where it refuses."""
        self.apply_all({name: spec}, annotations)

    def apply_all(self, specs: dict[str, dict[str, Any]], annotations: dict[str, str] | None = None) -> None:
        """Make or change many."""
        self.cluster.apply(
            *(
                {
                    "apiVersion": "tickkeeper.dev/v1alpha1",
                    "kind": "TickSchedule",
                    "metadata": {"name": name, "annotations": annotations or {}},
                    "spec": {"tenant": name, "jobName": "drain", "everyMs": 1000} | spec,
                }
                for name, spec in specs.items()
            ),
            namespace=self.namespace,
        )

    def delete(self, *names: str, wait: bool = True) -> None:
        """Delete some."""
        self.cluster.kubectl("delete", "tickschedule", *names, "-n", self.namespace, f"--wait={str(wait).lower()}")

    def status(self, name: str) -> dict[str, Any]:
        """The status of one; empty before the first."""
        found = self.cluster.get("tickschedule", name, self.namespace)
        assert found is not None, f"no TickSchedule {self.namespace}/{name}"
        status: dict[str, Any] = found.get("status") or {}
        return status

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """Status and reason of a condition; empty where it is not there yet."""
        for condition in self.status(name).get("conditions", []):
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        return "", ""

    def wait_until(self, name: str, kind: str, status: str, reason: str | None = None, *, seconds: float = 60) -> None:
        """Wait for a condition."""

        def so() -> bool:
            found = self.condition(name, kind)
            return found[0] == status and (reason is None or found[1] == reason)

        wait_for(so, seconds=seconds, what=f"{self.namespace}/{name} {kind}={status} {reason or ''}", interval=0.3)

    def scheduler(self, name: str) -> str:
        """The id that its scheduler is registered under."""
        registered: dict[str, str] = self.status(name)["registered"]
        return registered["schedulerId"]

    def all(self) -> list[dict[str, Any]]:
        """Every one, as it is stored."""
        return self.cluster.list("tickschedules", self.namespace)
