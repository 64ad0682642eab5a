"""Node.js with the npm packages of one folder, for the tests that hold this project against BullMQ's own workers."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from embedded.cache import cache_folder, cached, say
from embedded.errors import MissingPart, PartFailed
from embedded.process import Process, make_folder, remove_folder

_OLDEST = 20  # older ones are out of maintenance
_REMEDY = f"Node.js >= {_OLDEST} with npm is needed: install it (nodejs and npm), or put node and npm on PATH"


def find_node() -> Path:
    """The ``node`` on PATH; MissingPart with the remedy where there is none or it is too old."""
    found = shutil.which("node")
    if found is None:
        raise MissingPart(f"no node found: {_REMEDY}")
    if int(node_version(Path(found)).split(".")[0]) < _OLDEST:
        raise MissingPart(f"{found} is {node_version(Path(found))}: {_REMEDY}")
    return Path(found)


def node_version(node: Path) -> str:
    """E.g. ``20.20.2``."""
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingPart(f"{node} does not run ({error}): {_REMEDY}") from None
    if not re.fullmatch(r"v\d+(\.\d+)+\S*", said.strip()):
        raise MissingPart(f"{node} --version says {said.strip()!r}: {_REMEDY}")
    return said.strip().removeprefix("v")


class NodeProject:
    """A folder with a package.json and scripts, runnable without anything being written into it.

    The packages are installed once per content of package.json (and package-lock.json) into the user's cache folder.
    Scripts run from a temporary copy of the folder beside them, so that both ``import`` and ``require`` find them.
    """

    def __init__(self, folder: Path) -> None:
        """Describe the project; nothing is installed or looked for yet."""
        self._source = folder.resolve()
        self._copy: Path | None = None

    @cached_property
    def node(self) -> Path:
        """The node that is used; MissingPart when there is none."""
        return find_node()

    @property
    def version(self) -> str:
        """Node's version and those of the packages that package.json names, e.g. ``20.20.2 (bullmq 6.7.0)``."""
        described = json.loads((self._source / "package.json").read_text(encoding="utf-8"))
        packages = ", ".join(f"{name} {asked}" for name, asked in sorted(described.get("dependencies", {}).items()))
        return f"{node_version(self.node)} ({packages})"

    def prepare(self) -> Path:
        """Install the packages where they are not yet; return the folder that holds ``node_modules``."""
        return cached(self._key, self._install)

    def run(self, script: str, *args: str, env: Mapping[str, str] | None = None, seconds: float = 60) -> str:
        """Run a script of the folder to its end and return its standard output; PartFailed with what it complained."""
        argv: list[str | Path] = [self.node, self._script(script), *args]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, timeout=seconds, env=os.environ | dict(env or {})
            )
        except subprocess.TimeoutExpired:
            raise PartFailed(f"node {script} did not end within {seconds:g} s") from None
        if done.returncode != 0:
            raise PartFailed(f"node {script} (exit {done.returncode}): {done.stderr.strip()[-2000:]}")
        return done.stdout

    def process(self, script: str, *args: str, log: Path, env: Mapping[str, str] | None = None) -> Process:
        """A script of the folder as a process of its own, not yet started; its output goes to ``log``."""
        return Process([self.node, self._script(script), *args], log=log, env=os.environ | dict(env or {}))

    def close(self) -> None:
        """Remove the temporary copy. Idempotent."""
        if self._copy is not None:
            remove_folder(self._copy)
            self._copy = None

    def __enter__(self) -> Self:
        """Install the packages."""
        self.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the temporary copy."""
        self.close()

    @property
    def installed(self) -> bool:
        """True when the packages are in the cache."""
        return (cache_folder() / self._key).is_dir()

    @property
    def _key(self) -> str:
        digest = hashlib.sha256()
        for name in ("package.json", "package-lock.json"):
            path = self._source / name
            digest.update(path.read_bytes() if path.exists() else b"\0")
        return f"node-{digest.hexdigest()[:16]}"

    def _script(self, name: str) -> Path:
        if self._copy is None:
            installed = self.prepare()
            self._copy = make_folder("node")
            shutil.copytree(self._source, self._copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
            (self._copy / "node_modules").symlink_to(installed / "node_modules")
        return self._copy / name

    def _install(self, folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise MissingPart(f"no npm found: {_REMEDY}")
        for name in ("package.json", "package-lock.json"):
            if (self._source / name).exists():
                shutil.copy2(self._source / name, folder / name)
        locked = (folder / "package-lock.json").exists()
        say(f"npm {'ci' if locked else 'install'} for {self._source.name}")
        # Without --no-package-lock npm would write a lock file that names the registry this machine uses.
        command = ["ci"] if locked else ["install", "--no-package-lock"]
        argv = [
            npm,
            *command,
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--loglevel=error",
        ]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise PartFailed(f"npm {command[0]} failed (exit {done.returncode}): {done.stderr.strip()[-1000:]}")
