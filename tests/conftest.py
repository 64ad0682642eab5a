"""Settings of every test: hypothesis profiles, and the report header with the versions of the real parts."""

import os

import pytest
from hypothesis import HealthCheck, settings

from embedded.versions import table

settings.register_profile("default", deadline=None)
# Fixed examples, so that a red run can be repeated; slow machines fail no health check.
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """One line per real part: what it is and its version. Nothing is started, built or installed for it."""
    return [f"{part.name}: {part.version or part.remedy}" for part in table()]
