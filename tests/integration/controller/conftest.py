"""An operator as a process on a real API server and a real Redis.

``scene`` shares one operator and one Redis within its module; ``alone`` makes an operator of this test alone. No module
uses both: the shared one watches every namespace. Resources of earlier tests are taken away, so that no later operator
finds them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis as redis_py
from kubernetes import client, config

from embedded.kubernetes import KubeApi
from embedded.process import wait_for
from embedded.redis import Redis as RedisServer
from tests.integration.controller.operator_process import Operator, operator_process
from tests.integration.controller.scene import Cluster, Scene
from tickkeeper.api.resource import GROUP, PLURAL, VERSION

CRD_FILE = Path(__file__).parents[3] / "crds" / "tickkeeper.dev_tickschedules.yaml"

#: The module's operator, while there is one.
_shared: list[Operator] = []

#: Makes a Scene with an operator of its own; keyword arguments are the operator's settings.
Alone = Callable[..., Scene]


def serve(server: KubeApi, api: client.ApiClient) -> Cluster:
    """Install the CRD and wait until it is served."""
    server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD_FILE))
    cluster = Cluster(server, api)
    wait_for(lambda: _served(cluster), seconds=60, what="tickschedules are served")
    return cluster


def _served(cluster: Cluster) -> bool:
    try:
        cluster.schedules.list_cluster_custom_object(GROUP, VERSION, PLURAL)
    except client.ApiException as error:
        if error.status == 404:
            return False
        raise
    return True


@pytest.fixture(scope="session")
def cluster(kube_api: KubeApi) -> Iterator[Cluster]:
    """The session's API server."""
    with config.new_client_from_config(str(kube_api.kubeconfig)) as api:
        yield serve(kube_api, api)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of this test alone."""
    name = cluster.new_namespace()
    yield name
    cluster.clear(name)


@pytest.fixture(scope="module")
def shared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, Operator]]:
    """One Redis and one operator for the tests of a module that leave both alive."""
    with (
        RedisServer() as redis,
        operator_process(
            tmp_path_factory.mktemp("operator"),
            kubeconfig=cluster.server.kubeconfig,
            REDIS_URL=redis.url,
            DELETION_GRACE_SECONDS="3",
        ) as operator,
    ):
        operator.start()
        _shared.append(operator)
        yield redis, operator
        _shared.clear()
        assert operator.running, operator.tail
        assert '"reconcile_failed"' not in operator.text
        assert "Traceback" not in operator.text


@pytest.fixture
def scene(cluster: Cluster, namespace: str, shared: tuple[RedisServer, Operator]) -> Scene:
    """A namespace and a prefix of this test alone, with the module's operator and Redis."""
    redis, operator = shared
    return Scene(cluster, namespace, redis, operator)


@pytest.fixture
def raw(scene: Scene) -> Iterator[redis_py.Redis]:
    """A client of the scene's Redis."""
    with scene.server.client() as found:
        yield found


@pytest.fixture
def alone(cluster: Cluster, namespace: str, own_redis: RedisServer, tmp_path: Path) -> Iterator[Alone]:
    """Makes an operator of this test alone, on a Redis of this test alone; started unless ``start`` is False."""
    assert not _shared, "two operators would act on one resource: move this test to another module"
    with ExitStack() as stack:

        def make(*, start: bool = True, **settings: str) -> Scene:
            operator = stack.enter_context(
                operator_process(
                    tmp_path / "operator",
                    kubeconfig=cluster.server.kubeconfig,
                    **{
                        "REDIS_URL": own_redis.url,
                        "NAMESPACES": namespace,
                        "DELETION_GRACE_SECONDS": "3",
                        **settings,
                    },
                )
            )
            if start:
                operator.start()
            return Scene(cluster, namespace, own_redis, operator)

        yield make
