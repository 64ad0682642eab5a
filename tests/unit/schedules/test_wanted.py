from typing import Any

from tickkeeper.api.resource import ResourceMeta
from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.api.tick import TickData
from tickkeeper.schedules.desired import Cron, Every, Owner, Place, ResourceKey
from tickkeeper.schedules.identity import derive_offset_ms
from tickkeeper.schedules.wanted import Retention, place, wanted

META = {"name": "acme-drain", "namespace": "apps", "uid": "uid-1", "generation": 3}


def desired(meta: dict[str, Any] | None = None, *, adopts_unstamped: bool = False, **spec: Any):
    fields = {"tenant": "acme", "jobName": "drain", "everyMs": 60_000, **spec}
    return wanted(
        ResourceMeta.parse({"metadata": {**META, **(meta or {})}}),
        TickScheduleSpec.parse({name: value for name, value in fields.items() if value is not None}),
        cluster="c-1",
        opts=Retention().opts(),
        adopts_unstamped=adopts_unstamped,
    )


def test_a_resource_becomes_a_scheduler():
    made = desired()
    assert made.owner == Owner("c-1", ResourceKey("apps", "acme-drain"), "uid-1", 3)
    assert made.place == Place("bull", "ticks", "drain.acme")
    assert made.schedule == Every(60_000, derive_offset_ms("uid-1", 60_000))
    assert made.job_name == "drain"
    assert (made.adopts_unstamped, made.adopts_foreign, made.deletion_policy) == (False, False, "Delete")


def test_an_explicit_id_and_offset_win():
    made = desired(schedulerId="mine:a", offsetMs=7)
    assert made.place.scheduler_id == "mine:a"
    assert made.schedule == Every(60_000, 7)


def test_cron():
    made = desired(everyMs=None, cron={"pattern": "0 3 * * *"})
    assert made.schedule == Cron("0 3 * * *", "UTC")
    assert "everyMs" not in made.data["tickkeeper"]


def test_the_data_is_what_a_worker_reads():
    made = desired(data={"region": "eu"}, tick={"kinds": ["mail"], "batchSize": 5}, concurrencyPolicy="Allow")
    tick = TickData.parse(dict(made.data))
    assert tick.tenant_id == "acme"
    assert tick.data == {"region": "eu"}
    stamp = tick.tickkeeper
    assert (stamp.cluster, stamp.namespace, stamp.name, stamp.uid, stamp.generation) == (
        "c-1",
        "apps",
        "acme-drain",
        "uid-1",
        3,
    )
    assert (stamp.every_ms, stamp.concurrency_policy, stamp.deletion_policy) == (60_000, "Allow", "Delete")
    assert (stamp.tick.kinds, stamp.tick.batch_size, stamp.tick.lease_ms) == (("mail",), 5, None)


def test_adoption():
    assert desired(adopts_unstamped=True).adopts_unstamped
    assert desired({"annotations": {"tickkeeper.dev/adopt": "true"}}).adopts_foreign


def test_retention_becomes_template_options_with_one_attempt():
    opts = Retention(completed_count=1, completed_age_seconds=2, failed_count=3, failed_age_seconds=4).opts()
    assert opts == {
        "attempts": 1,
        "removeOnComplete": {"count": 1, "age": 2},
        "removeOnFail": {"count": 3, "age": 4},
    }


def test_place_needs_no_more_than_the_spec():
    spec = TickScheduleSpec.parse({"tenant": "b", "jobName": "a", "everyMs": 10, "prefix": "{x}", "queueName": "q"})
    assert place(spec) == Place("{x}", "q", "a.b")
