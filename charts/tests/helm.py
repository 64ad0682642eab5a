"""Rendering the chart."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from charts.tools.values import CHART
from embedded.errors import MissingPart

NAMESPACE = "tk"
CASES = sorted(file.name.removesuffix("-values.yaml") for file in (CHART / "ci").glob("*-values.yaml"))

Object = dict[str, Any]


class Refused(Exception):
    """Helm does not render these values; the message is what it says."""


def case(name: str) -> dict[str, Any]:
    """The values of one file of ci/."""
    values: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8"))
    return values


def run(*argv: str) -> str:
    """Run helm. Raises Refused, and MissingPart where there is none."""
    program = shutil.which("helm")
    if program is None:
        raise MissingPart("no helm found: install Helm 3.17 or newer and put it on PATH")
    done = subprocess.run([program, *argv], capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    if done.returncode != 0:
        raise Refused((done.stderr + done.stdout).strip())
    return done.stdout


def with_values(command: str, values: dict[str, Any], *argv: str) -> str:
    """Run a helm command on the chart with these values."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        return run(command, *argv, str(CHART), "-f", str(file))


def render(values: dict[str, Any], *, release: str = "t") -> list[Object]:
    """The objects of a release, hooks too. Raises Refused."""
    text = with_values("template", values, release, "--namespace", NAMESPACE)
    return [each for each in yaml.safe_load_all(text) if each]


def one(objects: list[Object], kind: str, name: str) -> Object:
    """The object of this kind and name."""
    found = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)} among {[(o['kind'], o['metadata']['name']) for o in objects]}"
    return found[0]


def pod_templates(objects: list[Object]) -> list[tuple[str, Object]]:
    """Name and pod of everything that runs."""
    found = []
    for each in objects:
        if each["kind"] == "Pod":
            found.append((each["metadata"]["name"], each))
        elif "template" in each.get("spec", {}):
            found.append((each["metadata"]["name"], each["spec"]["template"]))
    return found
