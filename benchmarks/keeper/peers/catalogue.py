"""The peers: what each needs, and the processes it is."""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from embedded.cache import cached, say
from embedded.errors import PartFailed


@dataclass(frozen=True, slots=True)
class Peer:
    """One of them. ``registers`` runs to its end first; then ``programs`` run side by side. All are arguments of the
    interpreter of its environment."""

    name: str
    requirements: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]
    registers: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Its name and version."""
        return self.requirements[0].replace("==", " ")

    def interpreter(self) -> Path:
        """The interpreter of its environment, which is made and filled from PyPI at the first time."""
        wanted = "\n".join([sys.version, *self.requirements])
        key = f"peer-{self.name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
        return cached(key, self._install) / "bin" / "python"

    def _install(self, folder: Path) -> None:
        say(f"installing {', '.join(self.requirements)}")
        _run(sys.executable, "-m", "venv", str(folder))
        pip = (str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input")
        _run(*pip, "install", "--quiet", *self.requirements)


PEERS = (
    Peer(
        "celery-redbeat",
        ("celery-redbeat==2.4.2", "celery[redis]==5.7.0"),
        (
            ("-m", "celery", "-A", "celery_redbeat_app", "worker", "--concurrency", "1"),
            ("-m", "celery", "-A", "celery_redbeat_app", "beat", "--scheduler", "redbeat.RedBeatScheduler"),
        ),
    ),
    Peer(
        "rq-scheduler",
        ("rq-scheduler==0.14.0", "rq==3.0.0"),
        (
            ("-m", "rq.cli", "worker", "--url", "{redis}", "--quiet"),
            ("-m", "rq_scheduler.scripts.rqscheduler", "--url", "{redis}", "--interval", "1"),
        ),
        ("rq_scheduler_app.py",),
    ),
    Peer("apscheduler", ("apscheduler==3.11.3", "redis==8.1.0"), (("apscheduler_app.py",),)),
    Peer("bullmq-alone", ("bullmq==3.4.4",), (("bullmq_app.py",),)),
)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise PartFailed(f"{' '.join(argv[:4])} failed (exit {done.returncode}): {done.stderr.strip()[-1000:]}")
