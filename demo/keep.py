"""KEEP=1: how to look at what runs."""

import os
import shutil
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from demo import database
from demo.cluster import NAMESPACE, kubectl
from demo.parts import Parts
from embedded.postgres_install import find_postgres_bin

_HERE = Path(__file__).resolve().parent


def how_to_use(parts: Parts, *, went_well: bool) -> str:
    """Commands for what is running. Where all went well both schedules are applied once more, to have some to look at.

    Passwords stay in files that only this user reads, though these parts are thrown away at the end.
    """
    went = "It all went as it must" if went_well else "It failed"
    if went_well:
        kubectl(parts.cluster, "apply", "-f", str(_HERE / "acme.yaml"), "-f", str(_HERE / "globex.yaml"))
    admin = _admin_password_file(parts)
    psql = shutil.which("psql") or find_postgres_bin() / "psql"
    owner = urlsplit(parts.database.owner)
    where = f"-h 127.0.0.1 -p {owner.port} -U {owner.username} {database.NAME}"
    lines = [
        f"{went} and is left running; Ctrl-C ends it. In another terminal:",
        "",
        f"  export KUBECONFIG={parts.cluster.kubeconfig} PGPASSFILE={admin}",
        # libpq takes the password from the file: what is printed may end in a log.
        f"  export TICKKEEPER_REDIS_URL={parts.redis.url} TICKKEEPER_DATABASE_URL={_without_password(owner)}",
        f"  {_HERE.parent / '.venv' / 'bin' / 'tickkeeper'} outbox stats",
        f"  {_program('kubectl', parts.cluster.kubectl_path)} -n {NAMESPACE} get ticks -o wide",
        f"  {_program('kubectl', parts.cluster.kubectl_path)} -n {NAMESPACE} get events --watch",
        *_redis_cli(parts),
        f"  {psql} {where} -c \"SELECT tickkeeper.enqueue('acme', 'mail.welcome', '{{}}')\"",
        f"  {psql} {where} -c 'SELECT * FROM deliveries ORDER BY delivered_at DESC LIMIT 5'",
    ]
    for program in parts.programs:
        lines += [f"  tail -f {program.log}", f"  curl {program.probes}/metrics"]
    return "\n".join(lines)


def _without_password(dsn: SplitResult) -> str:
    return dsn._replace(netloc=f"{dsn.username}@{dsn.hostname}:{dsn.port}").geturl()


def _redis_cli(parts: Parts) -> list[str]:
    port = parts.redis.port
    if shutil.which("redis-cli"):
        return [f"  redis-cli -p {port} zrange bull:ticks:repeat 0 -1 withscores", f"  redis-cli -p {port} flushall"]
    python = f".venv/bin/python -c 'import redis; print(redis.Redis(port={port})"
    return [
        f"  redis-cli -p {port}    # is not on PATH here; the same from Python:",
        f'  {python}.zrange("bull:ticks:repeat", 0, -1, withscores=True))\'',
        f"  {python}.flushall())'",
    ]


def _program(name: str, path: Path) -> str:
    return name if shutil.which(name) == str(path) else str(path)


def _admin_password_file(parts: Parts) -> Path:
    owner = urlsplit(parts.database.owner)
    path = parts.folder / "pgpass"
    path.touch(mode=0o600)
    path.write_text(f"127.0.0.1:{owner.port}:*:{owner.username}:{owner.password}{os.linesep}", encoding="utf-8")
    return path
