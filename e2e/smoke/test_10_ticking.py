"""From nothing to rows handled, and back again after Redis lost everything."""

import time
from typing import Any

import pytest

from e2e import image
from e2e.cluster import Cluster
from e2e.measure import Measurements
from e2e.release import Release
from e2e.schedules import Schedules
from e2e.settings import Settings
from e2e.tools import Failed
from embedded.process import wait_for


def test_image_adds_little_to_its_base(settings: Settings, measured: Measurements) -> None:
    added = image.added_bytes(settings)
    measured.add("image on top of its base", added / 1e6, unit="MB", bar=image.MOST_ADDED / 1e6)
    assert added <= image.MOST_ADDED


def test_rows_are_handled_from_apply_on(release: Release, schedules: Schedules, measured: Measurements) -> None:
    applied = time.monotonic()
    schedules.apply("acme", queueName="ticks", jobName="mail")
    wait_for(lambda: "mail.acme" in release.ticks("ticks"), seconds=60, what="the first tick of acme", interval=0.2)
    measured.add("install to everything ready", release.timings["install"])
    measured.add("install to first tick", release.timings["install"] + time.monotonic() - applied, bar=60)
    schedules.wait_until("acme", "Ready", "True")
    schedules.wait_until("acme", "Ticking", "True", "Ticking")
    release.sql("SELECT tickkeeper.enqueue('acme', 'e2e.row', to_jsonb(n)) FROM generate_series(1, 500) AS n")
    wait_for(
        lambda: release.sql("SELECT count(*) FROM tickkeeper.outbox WHERE tenant_id = 'acme'") == "0",
        seconds=60,
        what="the outbox of acme is drained",
        interval=0.2,
    )
    assert release.sql("SELECT count(*), max(times) FROM deliveries") == "500|1"


def test_flushall_is_healed_and_counted(release: Release, schedules: Schedules, measured: Measurements) -> None:
    schedules.apply("flushed")
    schedules.wait_until("flushed", "Ticking", "True")
    key = f"{schedules.scheduler('flushed')}"
    flushed = time.monotonic()
    release.redis("FLUSHALL")
    wait_for(lambda: release.redis("ZSCORE", "bull:ticks:repeat", key), seconds=30, what="registered", interval=0.05)
    measured.add("FLUSHALL to registered again (seen by kubectl exec)", time.monotonic() - flushed)
    wait_for(lambda: schedules.status("flushed").get("heals", 0) >= 1, seconds=30, what="counted", interval=0.2)
    wait_for(lambda: key in release.ticks("ticks"), seconds=30, what="ticks again", interval=0.2)


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ({"everyMs": -5}, "everyMs"),
        ({"everyMs": 1.5}, "everyMs"),
        ({"tenant": ""}, "tenant"),
        ({"cron": {"pattern": "* * * * *"}}, "exactly one of"),
        ({"queueName": "a:b"}, "queueName"),
        ({"data": {"tenantId": "x"}}, "tenantId"),
        ({"evryMs": 5000}, "evryMs"),
    ],
    ids=["negative", "fraction", "no-tenant", "both", "colon", "reserved", "misspelt"],
)
def test_bad_resources_are_refused(cluster: Cluster, release: Release, spec: dict[str, Any], rule: str) -> None:
    with pytest.raises(Failed, match=rule):
        Schedules(cluster, release.namespace).apply("bad", **spec)


def test_chart_test_passes(release: Release, cluster: Cluster) -> None:
    said = cluster.helm("test", release.name, "-n", release.namespace, "--logs", "--timeout", "150s")
    assert "passed" in said


def test_conflict_of_two_tenants_is_told(schedules: Schedules) -> None:
    schedules.apply_all({"one": {"schedulerId": "shared"}, "other": {"schedulerId": "shared"}})

    def owner() -> str | None:
        """The one that has it, once the other says Conflict. Made in one second, either may be the older."""
        found = {name: schedules.condition(name, "Registered") for name in ("one", "other")}
        if sorted(found.values()) != [("False", "Conflict"), ("True", "Registered")]:
            return None
        return next(name for name, condition in found.items() if condition[0] == "True")

    wait_for(owner, seconds=60, what="one has it, the other says Conflict", interval=0.3)
    first = owner()
    assert first is not None
    schedules.delete(first)
    schedules.wait_until("other" if first == "one" else "one", "Registered", "True", "Registered")
