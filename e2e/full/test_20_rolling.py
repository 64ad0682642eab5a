"""Pods come and go; ticks and rows do not notice."""

import json
import threading
import time

from e2e.cluster import Cluster
from e2e.measure import Measurements
from e2e.release import Release
from e2e.schedules import Schedules
from embedded.process import wait_for

#: Name to interval: fifty for the bar, and five of them every second.
MANY = {f"t-{number:02}": 1000 if number % 10 == 0 else 5000 for number in range(50)}


class Watched:
    """The ticks of fifty schedules from a moment on."""

    def __init__(self, release: Release, schedules: Schedules, job: str) -> None:
        """``job`` is a name of this test alone, so that no other's ticks are taken for its own."""
        self.release = release
        self.schedules = schedules
        self.job = job

    def start(self) -> None:
        spec = {"queueName": "rolling", "jobName": self.job}
        self.schedules.apply_all({name: spec | {"everyMs": every} for name, every in MANY.items()})
        wait_for(lambda: self._ticks().keys() == MANY.keys(), seconds=90, what="all fifty tick", interval=0.5)
        self.since = self._redis_ms()

    def _ticks(self) -> dict[str, list[int]]:
        found = self.release.ticks("rolling")
        return {key.partition(".")[2]: slots for key, slots in found.items() if key.startswith(f"{self.job}.")}

    def missed(self) -> list[str]:
        """Slots since the start, but for those to come, that have no completed tick, each with its fate."""
        until = self._redis_ms()
        # The last of them may be at work.
        wait_for(
            lambda: not self._missing(until) or self._redis_ms() > until + 10_000,
            seconds=60,
            what="a look later",
            interval=0.3,
        )
        return [f"{slot} ({self._fate(slot)})" for slot in self._missing(until)]

    def _fate(self, slot: str) -> str:
        job = f"repeat:{self.job}.{slot}"
        if self.release.redis("ZSCORE", "bull:rolling:failed", job):
            return "failed: " + self.release.redis("HGET", f"bull:rolling:{job}", "failedReason")
        if self.release.redis("LPOS", "bull:rolling:active", job):
            return "left active"
        if self.release.redis("LPOS", "bull:rolling:wait", job):
            return "waits"
        # BullMQ makes the next slot when a tick is taken up; what was due meanwhile is left out.
        name, _, due = slot.partition(":")
        before = int(due) - MANY[name]
        taken = self.release.redis("HGET", f"bull:rolling:repeat:{self.job}.{name}:{before}", "processedOn")
        return f"never made: the one before was taken up {int(taken) - before} ms late" if taken else "never made"

    def _missing(self, until: int) -> list[str]:
        missing = []
        for name, slots in self._ticks().items():
            seen = set(slots)
            every = MANY[name]
            first = self.since + (slots[0] - self.since) % every
            missing += [f"{name}:{slot}" for slot in range(first, until, every) if slot not in seen]
        return missing

    def _redis_ms(self) -> int:
        seconds, micros = self.release.redis("TIME").split()
        return int(seconds) * 1000 + int(micros) // 1000


class Producer:
    """A hundred rows for all fifty tenants, again and again, until it is stopped."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.rows = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)

    def _produce(self) -> None:
        while not self._stop.is_set():
            self.release.sql(
                "SELECT tickkeeper.enqueue('t-' || lpad((n % 50)::text, 2, '0'), 'e2e.rolling', to_jsonb(n))"
                " FROM generate_series(1, 100) AS n"
            )
            self.rows += 100
            self._stop.wait(0.5)

    def __enter__(self) -> "Producer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _restarted(release: Release, component: str) -> float:
    started = time.monotonic()
    release.cluster.kubectl("rollout", "restart", f"deploy/{release.fullname}-{component}", "-n", release.namespace)
    release.rolled_out(f"deploy/{release.fullname}-{component}")
    return time.monotonic() - started


def test_a_rolling_restart_of_the_operator_misses_no_tick(
    release: Release, schedules: Schedules, measured: Measurements
) -> None:
    watched = Watched(release, schedules, "operator")
    watched.start()
    measured.add("rolling restart of the operator", _restarted(release, "operator"))
    missed = watched.missed()
    measured.add("ticks missed meanwhile, of 50 schedules", len(missed), unit="ticks", bar=0)
    assert not missed


def test_a_rolling_restart_of_the_workers_under_load_misses_nothing(
    release: Release, schedules: Schedules, measured: Measurements
) -> None:
    release.sql("TRUNCATE deliveries")
    watched = Watched(release, schedules, "workers")
    watched.start()
    with Producer(release) as producer:
        measured.add("rolling restart of the workers", _restarted(release, "worker-default"))
    missed = watched.missed()
    wait_for(
        lambda: release.sql("SELECT count(*) FROM tickkeeper.outbox WHERE kind = 'e2e.rolling'") == "0",
        seconds=120,
        what="all rows are handled",
        interval=0.5,
    )
    delivered, twice = release.sql("SELECT count(*), count(*) FILTER (WHERE times > 1) FROM deliveries").split("|")
    measured.add("rows handled during it", int(delivered), unit="rows")
    measured.add("of them more than once", int(twice), unit="rows")
    measured.add("ticks missed meanwhile, of 50 schedules", len(missed), unit="ticks", bar=0)
    assert int(delivered) == producer.rows
    assert release.sql("SELECT count(*) FROM tickkeeper.outbox_dead") == "0"
    assert not missed


def test_a_drain_takes_one_pod_at_a_time(release: Release, cluster: Cluster) -> None:
    for component in ("operator", "worker-default"):
        release.rolled_out(f"deploy/{release.fullname}-{component}")
        first, second = (pod["metadata"]["name"] for pod in release.pods(component))
        _evict(cluster, release.namespace, first)
        assert not _evicted(cluster, release.namespace, second)
        # As soon as the replacement is ready, the drain goes on.
        _evict(cluster, release.namespace, second)
        release.rolled_out(f"deploy/{release.fullname}-{component}")


def _evict(cluster: Cluster, namespace: str, pod: str) -> None:
    wait_for(lambda: _evicted(cluster, namespace, pod), seconds=90, what=f"{pod} may go", interval=0.5)


def _evicted(cluster: Cluster, namespace: str, pod: str) -> bool:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    done = cluster.try_kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    assert done.returncode == 0 or "disruption budget" in done.stderr, done.stderr
    return done.returncode == 0


def test_e5_a_restart_writes_nothing_where_nothing_changed(release: Release, schedules: Schedules) -> None:
    schedules.apply_all({f"still-{number:03}": {"everyMs": 60_000, "queueName": "still"} for number in range(300)})

    def versions() -> dict[str, str]:
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in schedules.all()}

    def registered() -> bool:
        return all("registered" in each.get("status", {}) for each in schedules.all())

    wait_for(registered, seconds=90, what="all 300 are registered", interval=1)
    settled: list[dict[str, str]] = []

    def quiet() -> bool:
        settled.append(versions())
        return len(settled) > 3 and settled[-1] == settled[-4]

    wait_for(quiet, seconds=120, what="nothing is written any more", interval=2)
    _restarted(release, "operator")
    leader = _leader(release)
    wait_for(
        lambda: _gauge(release, leader, "tickkeeper_redis_schedules") >= 300, seconds=90, what="it has looked at all"
    )
    wait_for(
        lambda: _gauge(release, leader, "tickkeeper_redis_last_sweep_timestamp_seconds") > time.time() - 30,
        seconds=90,
        what="it has swept",
        interval=0.5,
    )
    assert versions() == settled[-1]


def _leader(release: Release) -> str:
    wait_for(lambda: release.leader() is not None, seconds=60, what="somebody leads", interval=0.3)
    leader = release.leader()
    assert leader is not None
    return leader


def _gauge(release: Release, pod: str, name: str) -> float:
    lines = [line for line in release.metrics(pod).splitlines() if line.startswith(name)]
    return max((float(line.rsplit(" ", 1)[1]) for line in lines), default=0.0)
