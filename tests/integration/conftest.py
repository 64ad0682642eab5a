"""The real parts as fixtures: servers live for the session, each test has its own state in them.

``own_redis`` and ``own_postgres`` are for tests that kill, freeze or reconfigure the server.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded.postgres import Postgres
from embedded.redis import Redis

if TYPE_CHECKING:
    import redis as redis_py

    from embedded.kubernetes import KubeApi


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """One Redis for the session; take ``redis`` or ``redis_url`` instead, which empty it first."""
    with Redis() as server:
        yield server


@pytest.fixture
def redis(redis_server: Redis) -> Iterator["redis_py.Redis"]:
    """A synchronous client (text answers) of the session's Redis, emptied for this test."""
    with redis_server.client() as client:
        client.flushall()
        client.script_flush()
        yield client


@pytest.fixture
def redis_url(redis_server: Redis, redis: "redis_py.Redis") -> str:
    """The URL of the session's Redis, emptied for this test."""
    return redis_server.url


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """A Redis of this test alone, to be killed, restarted, frozen or reconfigured."""
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL for the session; ``database`` is what a test wants."""
    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[str]:
    """The dsn of an empty database of this test alone."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL of this test alone, to be killed, restarted or frozen."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def kube_api() -> Iterator["KubeApi"]:
    """One Kubernetes API server (etcd + kube-apiserver, RBAC on) for the session."""
    from embedded.kubernetes import KubeApi

    with KubeApi() as server:
        yield server


@pytest.fixture
def kubeconfig(kube_api: "KubeApi") -> Path:
    """The kubeconfig file of a cluster admin of the session's API server."""
    return kube_api.kubeconfig
