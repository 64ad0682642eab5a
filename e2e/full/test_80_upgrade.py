"""The chart's own changes over time."""

import shutil
from pathlib import Path

import yaml

from e2e.cluster import Cluster
from e2e.release import Release
from e2e.schedules import Schedules
from e2e.settings import CHART
from embedded.process import wait_for

CRD = "tickschedules.tickkeeper.dev"


def _has_policy(cluster: Cluster) -> bool:
    crd = cluster.get("crd", CRD)
    assert crd is not None
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return "concurrencyPolicy" in spec["properties"]


def test_e9_an_upgrade_brings_the_crd_along_and_keeps_resources(
    release: Release, cluster: Cluster, schedules: Schedules, tmp_path: Path
) -> None:
    # The previous release knew a field less.
    older = tmp_path / "tickkeeper"
    shutil.copytree(CHART, older)
    file = older / "files" / "tickschedules.crd.yaml"
    crd = yaml.safe_load(file.read_text(encoding="utf-8"))
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["concurrencyPolicy"]
    file.write_text(yaml.safe_dump(crd), encoding="utf-8")
    # Who takes over a CRD that another release left says so.
    release.helm("upgrade", str(older), "--take-ownership", "--wait", "--timeout", "300s")
    wait_for(lambda: not _has_policy(cluster), seconds=30, what="the older CRD is in place", interval=0.5)
    schedules.apply("old")
    schedules.wait_until("old", "Ready", "True")
    before = cluster.get("tickschedule", "old", schedules.namespace)
    assert before is not None
    assert "concurrencyPolicy" not in before["spec"]
    key = schedules.scheduler("old")

    release.upgrade()
    wait_for(lambda: _has_policy(cluster), seconds=30, what="the CRD of this release is in place", interval=0.5)
    after = cluster.get("tickschedule", "old", schedules.namespace)
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["concurrencyPolicy"] == "Forbid"
    count = len(release.ticks("ticks").get(key, []))
    wait_for(lambda: len(release.ticks("ticks")[key]) > count + 2, seconds=60, what="it ticks on", interval=0.5)


def test_a_release_of_another_name_takes_over_what_was_kept(
    release: Release, cluster: Cluster, schedules: Schedules
) -> None:
    every = 60_000
    schedules.apply_all({f"kept-{number}": {"everyMs": every, "queueName": "still"} for number in range(5)})
    for number in range(5):
        schedules.wait_until(f"kept-{number}", "Ready", "True")
    names = [schedules.scheduler(f"kept-{number}") for number in range(5)]

    def phases(installed: Release) -> list[float]:
        scores = [installed.redis("ZSCORE", "bull:still:repeat", name) for name in names]
        return [float(score) % every if score else -1 for score in scores]

    before = phases(release)
    assert -1 not in before
    uids = {each["metadata"]["uid"] for each in schedules.all()}
    crd = cluster.get("crd", CRD)
    assert crd is not None
    release.uninstall()

    # The Redis of the first went with it; the CRD is the one that it left.
    successor = Release(cluster, "successor", release.namespace, release.values)
    successor.install()
    wait_for(lambda: phases(successor) == before, seconds=60, what="all are back in their slots", interval=0.5)
    assert {each["metadata"]["uid"] for each in schedules.all()} == uids
    now = cluster.get("crd", CRD)
    assert now is not None
    assert now["metadata"]["uid"] == crd["metadata"]["uid"]
    assert now["metadata"]["annotations"] == crd["metadata"]["annotations"]
    schedules.delete(*(f"kept-{number}" for number in range(5)))
    successor.uninstall()
