"""What a run takes from its environment."""

import os
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "tickkeeper"
FILES = Path(__file__).parent / "files"


def _get(variable: str, default: str) -> str:
    return os.environ.get(variable) or default


@dataclass(frozen=True, slots=True)
class Settings:
    """Images and names; where a variable is not set, what is published is used."""

    cluster: str = field(default_factory=lambda: _get("E2E_CLUSTER", "tickkeeper-e2e"))
    #: None: the node image that this version of kind was released with
    node_image: str | None = field(default_factory=lambda: os.environ.get("KIND_NODE_IMAGE") or None)
    kind_config: str | None = field(default_factory=lambda: os.environ.get("KIND_CONFIG") or None)
    python_image: str = field(default_factory=lambda: _get("PYTHON_IMAGE", "python:3.13-slim"))
    redis_image: str = field(default_factory=lambda: _get("REDIS_IMAGE", "redis:8"))
    postgres_image: str = field(default_factory=lambda: _get("POSTGRES_IMAGE", "postgres:17"))
    #: has node on PATH; None: Debian's nodejs on top of the Python image
    node_js_image: str | None = field(default_factory=lambda: os.environ.get("NODE_IMAGE") or None)
    #: the image under test; built here unless E2E_IMAGE names one
    image: str = field(default_factory=lambda: _get("E2E_IMAGE", "tickkeeper:e2e"))
    build: bool = field(default_factory=lambda: not os.environ.get("E2E_IMAGE"))
    #: where logs, events and descriptions of a failed run are kept
    results: Path = field(default_factory=lambda: Path(_get("E2E_RESULTS", str(ROOT / ".tmp" / "e2e"))))

    @property
    def driver_image(self) -> str:
        """The image of the Node driver, built here for the full level."""
        return "tickkeeper-node-driver:e2e"
