"""Keeps what a person needs to see of a run that failed."""

from pathlib import Path

from e2e.cluster import Cluster
from e2e.tools import say

_OBJECTS = "pods,deployments,jobs,services,events,leases,tickschedules,poddisruptionbudgets,networkpolicies"


def keep(cluster: Cluster, folder: Path) -> None:
    """Write logs, events and descriptions into ``folder``. Never raises: the test's own failure is what counts."""
    folder.mkdir(parents=True, exist_ok=True)
    questions = {
        "objects.txt": ("get", _OBJECTS, "--all-namespaces", "-o", "wide"),
        "events.txt": ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
        "schedules.yaml": ("get", "tickschedules", "--all-namespaces", "-o", "yaml"),
        "pods.txt": ("describe", "pods", "--all-namespaces"),
        "nodes.txt": ("describe", "nodes"),
    }
    for name, question in questions.items():
        done = cluster.try_kubectl(*question)
        (folder / name).write_text(done.stdout + done.stderr, encoding="utf-8")
    pods = cluster.try_kubectl(
        *("get", "pods", "--all-namespaces", "-l", "app.kubernetes.io/part-of=tickkeeper"),
        *("-o", 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\\n"}{end}'),
    )
    for line in pods.stdout.split():
        namespace, _, pod = line.partition("/")
        for before in (False, True):
            done = cluster.try_kubectl(
                "logs", "-n", namespace, pod, "--all-containers", "--timestamps", *(("--previous",) if before else ())
            )
            if done.stdout:
                (folder / f"{pod}{'.previous' if before else ''}.log").write_text(done.stdout, encoding="utf-8")
    say(f"kept logs, events and descriptions in {folder}")
