"""What each part is on this machine and its version, or what is missing and the remedy; nothing is started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedded.errors import MissingPart
from embedded.kubernetes_assets import asset_version, find_assets, prepare_assets
from embedded.node import NodeProject, find_node, node_version
from embedded.postgres import Postgres
from embedded.postgres_install import find_postgres_bin
from embedded.redis import Redis, find_redis_server

#: The Node side of the interop tests.
NODE_PROJECT = Path(__file__).resolve().parent.parent / "tests" / "integration" / "interop" / "node"


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the table: ``version`` is empty where the part is missing, and then ``remedy`` says what to do."""

    name: str
    where: str = ""
    version: str = ""
    remedy: str = ""


def table() -> list[Part]:
    """One row per part, in a fixed order. Nothing is started, downloaded or built."""
    return [_part(name, describe) for name, (describe, _) in _PARTS.items()]


def prepare(names: Sequence[str] = ()) -> None:
    """Get the named parts (default: all): what can be downloaded or built is; MissingPart says what cannot."""
    for name in names or list(_PARTS):
        if name not in _PARTS:
            raise MissingPart(f"no part is called {name!r}: they are {', '.join(_PARTS)}")
        _PARTS[name][1]()


def _part(name: str, describe: Callable[[], tuple[Path, str]]) -> Part:
    try:
        where, version = describe()
    except MissingPart as missing:
        return Part(name, remedy=str(missing))
    return Part(name, str(where), version)


def _redis() -> tuple[Path, str]:
    return find_redis_server(), Redis(port=1).version


def _postgres() -> tuple[Path, str]:
    return find_postgres_bin(), Postgres(port=1).version


def _kubernetes() -> tuple[Path, str]:
    assets = find_assets()
    return assets, asset_version(assets)


def _node() -> tuple[Path, str]:
    if not (NODE_PROJECT / "package.json").exists():
        return find_node(), node_version(find_node())
    project = NodeProject(NODE_PROJECT)
    where, version = project.node, project.version
    if not project.installed:
        raise MissingPart(f"{where} {version}: packages not installed yet: `python -m embedded prepare node` does it")
    return where, version


def _prepare_node() -> None:
    find_node()  # says plainly what is lacking before npm does
    if (NODE_PROJECT / "package.json").exists():
        NodeProject(NODE_PROJECT).prepare()


_PARTS: dict[str, tuple[Callable[[], tuple[Path, str]], Callable[[], object]]] = {
    "redis": (_redis, find_redis_server),
    "postgresql": (_postgres, find_postgres_bin),
    "kubernetes": (_kubernetes, prepare_assets),
    "node": (_node, _prepare_node),
}
