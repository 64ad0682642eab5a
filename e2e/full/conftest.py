"""Another release, with the CRD that the first one left; its last tests take it away too."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster
from e2e.release import Release, values
from e2e.settings import Settings
from embedded.process import wait_for

#: Runs one command of the Node driver and returns what the pod printed.
Driver = Callable[..., str]


@pytest.fixture(scope="package")
def release(cluster: Cluster, settings: Settings) -> Release:
    """The chart under another name, in another namespace."""
    installed = Release(cluster, "keeper", "keeper-system", values(settings))
    installed.install()
    return installed


@pytest.fixture
def driver(release: Release, settings: Settings) -> Driver:
    """A Node replica of an application, as a pod."""

    def run(*words: str, **env: str) -> str:
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "driver"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "driver",
                        "image": settings.driver_image,
                        "imagePullPolicy": "IfNotPresent",
                        "args": ["driver.mjs", *words],
                        "env": [
                            {
                                "name": "PASSWORD",
                                "valueFrom": {"secretKeyRef": {"name": f"{release.fullname}-redis", "key": "password"}},
                            },
                            {
                                "name": "REDIS_URL",
                                "value": f"redis://:$(PASSWORD)@{release.fullname}-trial-redis:6379/0",
                            },
                            *({"name": name, "value": value} for name, value in env.items()),
                        ],
                    }
                ],
            },
        }
        cluster, namespace = release.cluster, release.namespace
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(pod))
        try:

            def ended() -> bool:
                found = cluster.get("pod", "driver", namespace)
                return found is not None and found["status"]["phase"] in ("Succeeded", "Failed")

            wait_for(ended, seconds=60, what="the driver's pod has ended", interval=0.3)
            return cluster.kubectl("logs", "-n", namespace, "driver")
        finally:
            cluster.kubectl("delete", "pod", "driver", "-n", namespace)

    return run
