"""The parts of the demo: three servers, and the operator and the worker as processes of their own."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from demo.cluster import Cluster, CurrentCluster, EmbeddedCluster
from demo.database import Database
from embedded.errors import MissingPart, PartFailed
from embedded.node import NodeProject
from embedded.ports import free_port
from embedded.postgres import Postgres
from embedded.process import Process, make_folder, remove_folder
from embedded.redis import Redis
from embedded.versions import NODE_PROJECT

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = Path(sys.executable).with_name("tickkeeper")
_LOG_LINES = 12


class Program:
    """``tickkeeper operator`` or ``worker``: a child process with probes on a port of its own, its log in a file."""

    def __init__(self, name: str, folder: Path, settings: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.probes = f"http://127.0.0.1:{free_port()}"
        settings = {
            "TICKKEEPER_HTTP_PORT": self.probes.rpartition(":")[2],
            "TICKKEEPER_LOG_FORMAT": "console",
            "NO_COLOR": "1",
            # The Kubernetes client writes a kubeconfig's certificates into files; a killed process leaves them.
            "TMPDIR": str(folder),
            **settings,
        }
        self._process = Process([_PROGRAM, name], log=self.log, cwd=_ROOT, env=_inherited() | settings)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process.running

    def start(self) -> None:
        """Start it and return at once; ``wait_ready`` follows."""
        self._process.start()

    def wait_ready(self) -> None:
        """Return once it says that it is ready; PartFailed with the end of its log when it does not."""
        self._process.wait_until(self._ready, seconds=60)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that does not help. Idempotent."""
        self._process.stop(seconds=15)

    def last_lines(self) -> list[str]:
        """The end of its log."""
        with suppress(OSError):
            return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return []

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.probes}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Parts:
    """Everything that runs. ``close`` ends it all and removes what it has written; so does the end of this process."""

    operator: Program
    worker: Program
    database: Database

    def __init__(self, *, current_cluster: bool) -> None:
        self.folder = make_folder("demo")
        self.redis = Redis()
        self.postgres = Postgres()
        self.cluster: Cluster = CurrentCluster(self.folder) if current_cluster else EmbeddedCluster()
        self.node: NodeProject | None = None
        #: why there is no Node.js, where there is none
        self.node_missing = ""

    def prepare(self) -> None:
        """Get what is not there yet. In the main thread, where Ctrl-C ends a build that takes minutes."""
        _ = self.redis.version, self.postgres.version  # MissingPart now, and not after minutes
        self.cluster.prepare()
        self._prepare_node()

    def start_servers(self) -> None:
        """Redis, PostgreSQL with the outbox, and the Kubernetes API, all at once."""
        threads = ThreadPoolExecutor(max_workers=3)
        starting = [threads.submit(each) for each in (self.redis.start, self._start_postgres, self.cluster.start)]
        try:
            wait(starting)
        finally:
            threads.shutdown()  # waits after Ctrl-C too: what is half started cannot be ended
        for each in starting:
            each.result()

    def start_programs(self) -> None:
        """The operator, as the account of deploy/rbac.yaml, and one worker; return once both are ready."""
        redis = {"TICKKEEPER_REDIS_URL": self.redis.url}
        operators = {"TICKKEEPER_KUBECONFIG": str(self.cluster.operator_kubeconfig)}
        self.operator = Program("operator", self.folder, redis | operators)
        workers = {
            "TICKKEEPER_DATABASE_URL": self.database.worker,
            "TICKKEEPER_HANDLERS": "demo.handlers",
            "DEMO_DATABASE_URL": self.database.worker,
        }
        self.worker = Program("worker", self.folder, redis | workers)
        for program in (self.operator, self.worker):
            program.start()
        for program in (self.operator, self.worker):
            program.wait_ready()

    def watching_client(self) -> redis.Redis:
        """A client that says at once that Redis is away."""
        return self.redis.client(socket_timeout=0.5, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 0))

    @property
    def versions(self) -> list[str]:
        """What runs here, and in which version."""
        clock = f"Node.js {self.node.version}" if self.node else f"no Node.js ({self.node_missing})"
        return [self.cluster.name, f"Redis {self.redis.version}", f"PostgreSQL {self.postgres.version}", clock]

    @property
    def programs(self) -> list[Program]:
        """The operator and the worker, as far as they have been made."""
        return [program for name in ("operator", "worker") if (program := self.__dict__.get(name))]

    def close(self) -> None:
        """End everything, what uses the others first. Idempotent; one part's fault does not keep the others."""
        with ExitStack() as ending:
            closes: list[Callable[[], None]] = [lambda: remove_folder(self.folder), self.cluster.close]
            closes += [self.redis.close, self.postgres.close]
            closes += [self.database.close] if "database" in self.__dict__ else []
            closes += [self.node.close] if self.node else []
            closes += [program.stop for program in self.programs]
            for close in closes:  # an ExitStack ends them in reverse
                ending.callback(close)

    def _prepare_node(self) -> None:
        if not (NODE_PROJECT / "package.json").exists():
            self.node_missing = "its project is missing"
            return
        node = NodeProject(NODE_PROJECT)
        try:
            node.prepare()
        except (MissingPart, PartFailed) as error:  # the Python port of BullMQ removes a scheduler just as well
            self.node_missing = str(error).partition(":")[0]
        else:
            self.node = node

    def _start_postgres(self) -> None:
        self.postgres.start()
        self.database = Database(self.postgres)
        migrated = subprocess.run(
            [_PROGRAM, "outbox", "migrate"],
            env=_inherited() | {"TICKKEEPER_DATABASE_URL": self.database.owner},
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        if migrated.returncode != 0:
            raise PartFailed(f"tickkeeper outbox migrate (exit {migrated.returncode}): {migrated.stderr.strip()}")
        self.database.set_up()


def _inherited() -> dict[str, str]:
    """Our environment without a developer's own TICKKEEPER_ variables: they are for another Redis."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TICKKEEPER_")}
