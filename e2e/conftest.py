"""The cluster that `python -m e2e` made, and what each test gets in it."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from kubernetes import config

from e2e import diagnose
from e2e.access import Access
from e2e.cluster import Cluster
from e2e.measure import Measurements
from e2e.schedules import Schedules
from e2e.settings import Settings

_MEASURED = pytest.StashKey[Measurements]()
_CLUSTER = pytest.StashKey[Cluster]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_MEASURED] = Measurements()
    kubeconfig = os.environ.get("E2E_KUBECONFIG")
    if kubeconfig is None:
        raise pytest.UsageError("run `make e2e` (python -m e2e): it makes the cluster that these tests need")
    config.stash[_CLUSTER] = Cluster(Settings().cluster, Path(kubeconfig))


@pytest.fixture(scope="session")
def settings() -> Settings:
    """What the run was told."""
    return Settings()


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Cluster:
    """The cluster."""
    return pytestconfig.stash[_CLUSTER]


@pytest.fixture(scope="session")
def measured(pytestconfig: pytest.Config) -> Measurements:
    """Where numbers go."""
    return pytestconfig.stash[_MEASURED]


@pytest.fixture(scope="module")
def access(cluster: Cluster) -> Iterator[Access]:
    """Who may do what."""
    with config.new_client_from_config(str(cluster.kubeconfig)) as api:  # type: ignore[no-untyped-call]
        yield Access(api, cluster)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of this test alone, deleted with all that is in it."""
    name = "e2e-" + request.node.name.removeprefix("test_").replace("_", "-").lower()[:50].strip("-")
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def schedules(cluster: Cluster, namespace: str) -> Schedules:
    """TickSchedules of this test."""
    return Schedules(cluster, namespace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        folder = Settings().results / item.name / report.when
        diagnose.keep(item.config.stash[_CLUSTER], folder)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    measured = config.stash[_MEASURED]
    terminalreporter.section("measured")
    for line in measured.lines():
        terminalreporter.write_line(line)
    measured.write(Settings().results / "measured.json")
