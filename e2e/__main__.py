"""``python -m e2e [--level smoke|full]``: cluster, image, tests, and everything removed again."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from e2e import diagnose, image, tools
from e2e.cluster import Cluster
from e2e.settings import ROOT, Settings
from e2e.tools import say

_LEVELS = {"smoke": ["e2e/smoke"], "full": ["e2e/smoke", "e2e/full"]}


def main() -> int:
    """Run a level. Returns pytest's exit code, 2 for one that was stopped, and 3 where this machine lacks something."""
    options, pytest_args = _options()
    settings = Settings()
    try:
        tools.check()
    except tools.Lacking as lacking:
        say(f"not run: {lacking}")
        return 3
    if options.check:
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    started = time.monotonic()
    shutil.rmtree(settings.results, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="tickkeeper-e2e-") as folder:
        cluster = Cluster(settings.cluster, Path(folder) / "kubeconfig")
        try:
            _prepare(cluster, settings, options)
            code = _test(cluster, options, pytest_args)
        except tools.Failed as failed:
            say(f"failed: {failed}")
            code = 1
        except _Stopped as stopped:
            say(f"stopped by {stopped}")
            diagnose.keep(cluster, settings.results / "stopped")
            code = 2
        finally:
            if options.keep and cluster.kubeconfig.exists():
                kept = settings.results / "kubeconfig"
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(cluster.kubeconfig, kept)
                say(f"kept: export KUBECONFIG={kept}; kind delete cluster --name {cluster.name}")
            else:
                say("removing the cluster")
                cluster.delete()
                image.remove(settings)
    say(f"level {options.level}: exit {code} after {time.monotonic() - started:.0f} s")
    return code


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m e2e", description=__doc__)
    parser.add_argument("--level", choices=sorted(_LEVELS), default=os.environ.get("LEVEL") or "smoke")
    parser.add_argument("--keep", action="store_true", default=bool(os.environ.get("KEEP")), help="leave the cluster")
    parser.add_argument("--check", action="store_true", help="say what this machine lacks, exit 3; else do nothing")
    return parser.parse_known_args()


def _prepare(cluster: Cluster, settings: Settings, options: argparse.Namespace) -> None:
    image.build(settings)
    images = [settings.image, settings.redis_image, settings.postgres_image]
    if options.level == "full":
        image.build_driver(settings)
        images.append(settings.driver_image)
    cluster.create(settings)
    cluster.pull_where_absent(settings.redis_image, settings.postgres_image)
    cluster.load(*images)


def _test(cluster: Cluster, options: argparse.Namespace, pytest_args: list[str]) -> int:
    say(f"level {options.level}")
    env = os.environ | {"E2E_KUBECONFIG": str(cluster.kubeconfig), "KUBECONFIG": str(cluster.kubeconfig)}
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    # Arguments replace the level's folders where they name files themselves.
    named = any(arg.startswith("e2e/") for arg in pytest_args)
    return subprocess.run(
        [*argv, *([] if named else _LEVELS[options.level]), *pytest_args], cwd=ROOT, env=env, check=False
    ).returncode


class _Stopped(BaseException):
    """A signal: no failure of what runs, and nothing that catches failures may catch it."""


def _stop(number: int, _frame: FrameType | None) -> None:
    # What tidies up is not to be stopped by the second signal of somebody in a hurry.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise _Stopped(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
