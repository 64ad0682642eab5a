"""One release for all tests of this level; the last of them uninstalls it."""

import pytest

from e2e.cluster import Cluster
from e2e.release import Release, values
from e2e.settings import Settings


@pytest.fixture(scope="package")
def release(cluster: Cluster, settings: Settings) -> Release:
    """The chart, installed with everything in it."""
    installed = Release(cluster, "smoke", "smoke", values(settings))
    installed.install()
    return installed
