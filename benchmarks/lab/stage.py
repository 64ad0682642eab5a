"""A Kubernetes API, a Redis, the operator, a worker and an onlooker, for one set of schedules."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from redis import Redis as Client
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.lab.operator import Operator, sum_of
from benchmarks.lab.partner import Partner
from benchmarks.lab.schedules import PREFIX, Schedule, create, queues_of
from benchmarks.lab.standing import Standing
from benchmarks.lab.truth import lasting_faults
from embedded.errors import PartFailed
from embedded.kubernetes import KubeApi
from embedded.node import NodeProject, find_node
from embedded.process import make_folder, remove_folder
from embedded.redis import Redis
from tickkeeper.api.resource import GROUP

_ROOT = Path(__file__).resolve().parents[2]
_CRD = _ROOT / "crds" / "tickkeeper.dev_tickschedules.yaml"
_NODE = Path(__file__).with_name("node")
_WRITES = ("POST", "PUT", "PATCH", "DELETE", "APPLY")
_LOOK = 0.002
_CONCURRENCY = 50
#: Seconds without an API write after which the operator counts as having told all there is; at its start it takes
#: more than a sweep (5 s) to see that all of them tick.
_QUIET = 1.5
_QUIET_AT_START = 7.0
#: Beyond so many schedules the first statuses are written at a higher rate than by default: nobody measures those.
_MANY = 500


class Stage(Standing):
    """All of it, on this machine. ``with`` starts the servers and puts the schedules into the API server."""

    def __init__(self, wanted: Sequence[Schedule]) -> None:
        """Describe it; nothing is started yet."""
        super().__init__()
        self.wanted = list(wanted)
        self.queues = queues_of(wanted)
        self.folder = make_folder("bench")
        self.redis = Redis()
        self.kube = KubeApi()
        self.operator: Operator
        self.client: Client
        self._repeats = [f"{PREFIX}:{queue}:repeat" for queue in self.queues]

    def _put_up(self) -> None:
        self._stack.callback(remove_folder, self.folder)
        self._start(self.redis, self.kube)
        self.client = self._stack.enter_context(self.redis.client(retry=Retry(NoBackoff(), 1)))
        self.operator = Operator(self.folder, redis_url=self.redis.url, kubeconfig=self.kube.kubeconfig)
        self._stack.callback(self.operator.stop)
        self.kube.kubectl("apply", "-f", str(_CRD))
        self.kube.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(_CRD))
        create(self.kube.kubeconfig, self.wanted)

    def _explain(self) -> None:
        print(f"the operator's log ends in:\n{self.operator.log_tail()}", file=sys.stderr)

    def start_operator(self) -> None:
        """Start the operator and return once all is registered and told."""
        if len(self.wanted) > _MANY:
            self.operator.start(STATUS_WRITES_PER_SECOND="1000")
            self.settle(seconds=600)
            self.operator.stop()
        self.operator.start()
        self.settle(quiet_for=_QUIET_AT_START)

    def start_worker(self, prefix: str = PREFIX) -> Partner:
        """A stock BullMQ worker (Node.js) for all queues; see lab/node/worker.mjs for what it can be asked."""
        settings = {"url": self.redis.url, "prefix": prefix, "queues": self.queues, "concurrency": _CONCURRENCY}
        env = {"WORKER_SETTINGS": json.dumps(settings)}
        log = self.folder / f"worker-{prefix}.log"
        return self._stack.enter_context(Partner([find_node(), self._node / "worker.mjs"], log=log, env=env))

    def start_bare(self) -> Partner:
        """A process that uses BullMQ without TickKeeper: see benchmarks.lab.bare for what it can be asked."""
        argv = [sys.executable, "-m", "benchmarks.lab.bare", self.redis.url]
        env = {"PYTHONPATH": f"{_ROOT}:{_ROOT / 'operator'}"}
        return self._stack.enter_context(Partner(argv, log=self.folder / "bare.log", env=env))

    def registered(self) -> int:
        """How many schedulers are registered."""
        pipe = self.client.pipeline(transaction=False)
        for key in self._repeats:
            pipe.zcard(key)
        return sum(pipe.execute())

    def until_registered(self, started: float, *, seconds: float = 120) -> float:
        """Wait until all are registered; the seconds since ``started`` (time.monotonic())."""
        total = len(self.wanted)
        self.until(lambda: self.registered() >= total, seconds, f"all {total} registered", look=_LOOK)
        return time.monotonic() - started

    def settle(self, *, seconds: float = 300, quiet_for: float = _QUIET) -> None:
        """Wait until all schedulers are right and the operator has nothing more to write to the API server."""
        self.until(lambda: not lasting_faults(self.client, self.wanted), seconds, "every schedule right", look=0.1)
        self.until(lambda: self.operator.metric("tickkeeper_redis_up") > 0, seconds, "metrics", look=0.1)
        quiet_since, last = time.monotonic(), -1.0

        def quiet() -> bool:
            nonlocal quiet_since, last
            writes = self.operator.api_writes()
            if writes != last:
                quiet_since, last = time.monotonic(), writes
            return time.monotonic() - quiet_since > quiet_for

        self.until(quiet, seconds, "no more API writes", look=0.3)

    def api_writes_served(self) -> float:
        """Writes to TickSchedules and events that the API server has counted, whoever made them."""
        text = self.kube.kubectl("get", "--raw", "/metrics")
        resources = sum_of(text, "apiserver_request_total", {"group": GROUP, "verb": _WRITES})
        events = sum_of(text, "apiserver_request_total", {"resource": "events", "verb": _WRITES})
        return resources + events

    def until(self, condition: Callable[[], Any], seconds: float, what: str, *, look: float) -> None:
        """Wait until something holds; PartFailed when it does not, or the operator ends meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.operator.running:
                raise PartFailed(f"the operator ended while waiting for: {what}")
            if time.monotonic() > deadline:
                raise PartFailed(f"not within {seconds:g} s: {what}")
            time.sleep(look)

    @cached_property
    def _node(self) -> Path:
        """The worker's script beside its packages."""
        folder = self.folder / "node"
        shutil.copytree(_NODE, folder)
        (folder / "node_modules").symlink_to(NodeProject(_NODE).prepare() / "node_modules")
        return folder
