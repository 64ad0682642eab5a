"""Keeps what a person needs to see of a run that failed."""

from pathlib import Path

from e2e.cluster import Cluster
from e2e.tools import Failed, say

# Of one question: a stopped run has little time left.
_SECONDS = 20
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
    try:
        for name, question in questions.items():
            done = cluster.try_kubectl(*question, seconds=_SECONDS)
            (folder / name).write_text(done.stdout + done.stderr, encoding="utf-8")
        for namespace, pod in _pods(cluster):
            for before in (False, True):
                if said := _log(cluster, namespace, pod, before=before):
                    (folder / f"{pod}{'.previous' if before else ''}.log").write_text(said, encoding="utf-8")
    except Failed as failed:
        say(f"the cluster does not answer any more: {failed}")
    say(f"kept logs, events and descriptions in {folder}")


def _pods(cluster: Cluster) -> list[tuple[str, str]]:
    found = cluster.try_kubectl(
        *("get", "pods", "--all-namespaces", "-l", "app.kubernetes.io/part-of=tickkeeper"),
        *("-o", 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\\n"}{end}'),
        seconds=_SECONDS,
    )
    return [(line.split()[0], line.split()[1]) for line in found.stdout.splitlines()]


def _log(cluster: Cluster, namespace: str, pod: str, *, before: bool) -> str:
    flags = ("--all-containers", "--timestamps", *(("--previous",) if before else ()))
    return cluster.try_kubectl("logs", "-n", namespace, pod, *flags, seconds=_SECONDS).stdout
