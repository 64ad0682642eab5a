"""Runs the commands, as `make` does, and reads what they kept."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run(module: str, results: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """``python -m`` with these environment variables."""
    return run_python("-m", module, results=results, **variables)


def run_python(*argv: str, results: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments and environment variables."""
    env = os.environ | {"RESULTS": str(results), "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", **variables}
    return subprocess.run(
        [sys.executable, *argv], env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def kept(results: Path) -> dict[str, Any]:
    """The one document of raw figures."""
    (path,) = results.glob("*.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document
