"""The peers: what each needs, and how its scripts are run."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from benchmarks.keeper.peers.catalogue import Peer as Environment
from embedded.errors import PartFailed
from embedded.node import NodeProject, find_node
from embedded.process import make_folder

_APPS = Path(__file__).with_name("apps")
_NODE = Path(__file__).with_name("node")
_SECONDS = 900.0


@dataclass(frozen=True)
class Peer:
    """One of them. ``script`` lies among the apps, or the Node project's files where there are no requirements."""

    name: str
    script: str
    settings: str
    requirements: tuple[str, ...] = ()
    mode: str = ""

    @property
    def version(self) -> str:
        """Its package and version."""
        if self.requirements:
            return self.requirements[0].replace("==", " ")
        package = self.script.removesuffix(".mjs")
        asked = json.loads((_NODE / "package.json").read_text(encoding="utf-8"))["dependencies"][package]
        return f"{package} {asked}"

    @property
    def label(self) -> str:
        """For the table."""
        return f"{self.version}, {self.settings}"

    def prepare(self) -> None:
        """Make its environment, at the first time."""
        assert self._command

    def run(self, dsn: str, *words: str) -> Any:
        """Ask one thing; its answer. Raises PartFailed with what it complained of."""
        env = self._env(dsn)
        argv = [*self._command, *words]
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise PartFailed(f"{self.name} {words[0]}: not over within {_SECONDS:g} s") from None
        lines = done.stdout.strip().splitlines()
        if done.returncode != 0 or not lines:
            raise PartFailed(f"{self.name} {words[0]} (exit {done.returncode}): {done.stderr.strip()[-1500:]}")
        return json.loads(lines[-1])

    def start(self, dsn: str, *words: str, log: Path) -> "subprocess.Popen[str]":
        """The same beside others: its answer is the last line of its output."""
        with log.open("ab") as errors:
            return subprocess.Popen(
                [*self._command, *words], env=self._env(dsn), stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def _env(self, dsn: str) -> dict[str, str]:
        return os.environ | {"PEER_DATABASE": dsn, "PEER_MODE": self.mode, "PYTHONDONTWRITEBYTECODE": "1"}

    @cached_property
    def _command(self) -> Sequence[str]:
        if self.requirements:
            python = Environment(self.name, self.requirements, ()).interpreter()
            return [str(python), str(_APPS / self.script)]
        return [str(find_node()), str(_node_folder() / self.script)]


@cache
def _node_folder() -> Path:
    """The scripts beside their packages."""
    folder = make_folder("peers") / "node"
    shutil.copytree(_NODE, folder)
    (folder / "node_modules").symlink_to(NodeProject(_NODE).prepare() / "node_modules")
    return folder


PGQUEUER = Peer(
    "pgqueuer",
    "pgqueuer_app.py",
    "asyncpg pool, batch 500",
    ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
)
PROCRASTINATE = Peer(
    "procrastinate",
    "procrastinate_app.py",
    "concurrency 30, jobs deleted",
    ("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
)
GRAPHILE = Peer("graphile-worker", "graphile-worker.mjs", "24 jobs at once", mode="default")
GRAPHILE_BATCHED = Peer(
    "graphile-batched", "graphile-worker.mjs", "24 at once, local queue 500, batches", mode="batched"
)
PG_BOSS = Peer("pg-boss", "pg-boss.mjs", "fetch and complete, batch 500, 4 at once")

DRAINING = (PGQUEUER, PROCRASTINATE, GRAPHILE, GRAPHILE_BATCHED, PG_BOSS)
