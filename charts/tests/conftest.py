from collections.abc import Iterator

import pytest

from charts.tests.helm import NAMESPACE
from embedded.kubernetes import KubeApi


@pytest.fixture(scope="session")
def kube_api() -> Iterator[KubeApi]:
    """An API server with the namespaces that the values of ci/ name."""
    with KubeApi() as server:
        for namespace in (NAMESPACE, "team-a", "team-b"):
            server.kubectl("create", "namespace", namespace)
        yield server
