"""``python -m charts.tools.sbom LOCK``: what the image has, as CycloneDX, from the lock file that it is built from."""

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from packaging.markers import Marker

from tickkeeper import __version__

#: The image: CPython on Linux. Markers of the lock are judged by it.
_IMAGE = {
    "implementation_name": "cpython",
    "python_version": "3.13",
    "python_full_version": "3.13.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
}
_LINE = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;\\]+)(?: *; *(?P<marker>[^\\]+))?")


class Pinned(NamedTuple):
    """One package of the lock."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pinned(lock: str) -> list[Pinned]:
    """The packages of a lock file that the image gets."""
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in lock.splitlines():
        if start := _LINE.match(line):
            found.append((start, []))
        elif "--hash=sha256:" in line and found:
            found[-1][1].append(line.partition("sha256:")[2].split()[0])
    return [
        Pinned(start["name"], start["version"], tuple(hashes))
        for start, hashes in found
        if start["marker"] is None or Marker(start["marker"]).evaluate(_IMAGE)
    ]


def sbom(lock: str) -> dict[str, Any]:
    """A CycloneDX 1.6 document; the same lock gives the same document."""
    packages = pinned(lock)
    root = f"pkg:pypi/tickkeeper@{__version__}"
    references = [f"pkg:pypi/{each.name}@{each.version}" for each in packages]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, root + lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "tickkeeper",
                "version": __version__,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": reference,
                "name": each.name,
                "version": each.version,
                "purl": reference,
                # The archives that may be installed: which of them it is depends on the machine.
                "properties": [{"name": "tickkeeper:archive:sha256", "value": value} for value in each.hashes],
            }
            for each, reference in zip(packages, references, strict=True)
        ],
        "dependencies": [{"ref": root, "dependsOn": references}],
    }


if __name__ == "__main__":
    json.dump(sbom(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.stdout, indent=2)
    print()
