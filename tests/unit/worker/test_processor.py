"""Reading jobs, naming connections, one report a fault."""

from types import SimpleNamespace

import pytest
from bullmq import UnrecoverableError
from prometheus_client import CollectorRegistry
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from tickkeeper.api.cron import next_fire_ms
from tickkeeper.telemetry.metrics import WorkerMetrics
from tickkeeper.worker.consumer import client_name
from tickkeeper.worker.contact import Contact
from tickkeeper.worker.cron import repeat_strategy
from tickkeeper.worker.handlers import Kinds
from tickkeeper.worker.limits import Limits
from tickkeeper.worker.listeners import _Reports, kind_of
from tickkeeper.worker.processor import due_seconds, read


def _job(data, **fields):
    return SimpleNamespace(**{"id": "1", "data": data, "opts": {}, "repeatJobKey": None, "timestamp": 0, **fields})


def _stamp(**fields):
    return {"cluster": "c", "namespace": "n", "name": "x", "uid": "u", "generation": 1, **fields}


def _read(job, default_tenant=None):
    return read(job, default_tenant=default_tenant, defaults=Limits())


def test_a_stamped_tick_says_what_to_do():
    stamp = _stamp(everyMs=5000, tick={"kinds": ["a.*"], "batchSize": 9})
    data, limits = _read(_job({"tenantId": "acme", "x": 1, "tickkeeper": stamp}))
    assert data.tenant_id == "acme"
    assert (limits.wanted, limits.batch_size, limits.budget.total_seconds()) == (Kinds.of("a.*"), 9, 5)


def test_an_unstamped_ticks_interval_is_bullmqs():
    _, limits = _read(_job({"tenantId": "acme"}, opts={"repeat": {"every": 7000}}))
    assert limits.budget.total_seconds() == 7


def test_what_a_newer_operator_wrote_is_no_fault():
    data, _ = _read(_job({"tenantId": "acme", "tickkeeper": _stamp(novelty=1)}))
    assert data.tickkeeper.uid == "u"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "not a tick: tenantId: Field required"),
        ({"tenantId": None}, "not a tick: tenantId: "),
        (None, "not a tick: tenantId: Field required"),
        ({"tenantId": "a", "tickkeeper": {}}, "not a tick: tickkeeper.cluster: Field required; "),
        ({"tenantId": "a", "tickkeeper": 5}, "not a tick: tickkeeper: "),
        ({"tenantId": "a", "tickkeeper": _stamp(tick={"leaseMs": 1})}, "not a tick: tickkeeper.tick.leaseMs: "),
        (
            {"tenantId": "a", "tickkeeper": _stamp(tick={"kinds": ["a*"]})},
            "not a tick: tickkeeper.tick.kinds: kind 'a*'",
        ),
    ],
)
def test_what_is_no_tick_is_not_tried_again(data, says):
    with pytest.raises(UnrecoverableError) as caught:
        _read(_job(data))
    assert str(caught.value).startswith(says)


def test_the_default_tenant_serves_ticks_without_data():
    assert _read(_job(None), default_tenant="acme")[0].tenant_id == "acme"
    assert _read(_job({"tenantId": "own"}), default_tenant="acme")[0].tenant_id == "own"


@pytest.mark.parametrize(
    ("job", "due"),
    [
        (_job({}, id="repeat:tick.acme:1700000000123", repeatJobKey="tick.acme"), 1_700_000_000.123),
        (_job({}, id="7", timestamp=1000, delay=500), 1.5),
        (_job({}, id="odd", repeatJobKey="x", timestamp=2000, delay=0), 2.0),
    ],
)
def test_when_a_job_was_due(job, due):
    assert due_seconds(job) == due


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (("bull", "ticks", None), "bull:ticks"),
        (("bull", "ticks", "pod-1"), "bull:ticks:w:pod-1"),
        (("{b}", "two words", "pod"), "{b}:dHdvIHdvcmRz:w:pod"),
        (("bull", "häufig", None), "bull:aMOkdWZpZw=="),
        (("odd prefix", "ticks", "a b"), "odd_prefix:ticks:w:a_b"),
    ],
)
def test_connections_have_names_that_redis_takes(args, name):
    assert client_name(*args) == name


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TypeError("Missing lock for job 5. moveToFinished"), "lock"),
        (TypeError("Lock mismatch for job 5. Cmd moveToFinished from active"), "lock"),
        (Exception("could not renew lock for job 5"), "lock"),
        (TypeError("Missing key for job 5. moveToFinished"), "script"),
        (RuntimeError("Failed to add repeatable job for next iteration: x"), "scheduler"),
        (TypeError("Cannot create job scheduler iteration - job ID already exists. addJobScheduler"), "scheduler"),
        (RedisConnectionError("x"), "redis"),
        (AuthenticationError("x"), "redis"),
        (ValueError("x"), "other"),
    ],
)
def test_errors_are_told_apart(error, kind):
    assert kind_of(error) == kind


def test_p9_one_lock_is_one_report():
    metrics = WorkerMetrics(CollectorRegistry())
    reports = _Reports("ticks", metrics)
    with capture_logs() as logs:
        reports.locks_lost(["repeat:a:5"])
        reports.error(Exception("could not renew lock for job repeat:a:5"))
        reports.locks_lost(["repeat:a:5"])
        reports.error(TypeError("Missing lock for job repeat:a:5. moveToFinished"), SimpleNamespace(id="repeat:a:5"))
    assert len(logs) == 1
    assert metrics.registry.get_sample_value("tickkeeper_lock_losses_total", {"queue": "ticks"}) == 1


def test_p8_a_fault_that_lasts_is_not_a_flood():
    metrics = WorkerMetrics(CollectorRegistry())
    reports = _Reports("ticks", metrics)
    with capture_logs() as logs:
        for _ in range(500):
            reports.error(TypeError("READONLY"))
    assert len(logs) == 1
    value = metrics.registry.get_sample_value("tickkeeper_worker_errors_total", {"queue": "ticks", "type": "script"})
    assert value == 500


def test_contact_tells_changes_only():
    contact = Contact("ticks", WorkerMetrics(CollectorRegistry()))
    assert contact.fault == "redis: not connected yet"
    with capture_logs() as logs:
        contact.note(None)
        assert contact.fault is None
        for _ in range(100):
            contact.note(RedisConnectionError("refused"))
        assert contact.fault == "redis: no connection to Redis (refused)"
        contact.note(None)
        contact.note(None)
    assert [line["event"] for line in logs] == ["redis does not answer; trying on", "redis answers again"]


def test_silence_is_a_fault(monkeypatch):
    contact = Contact("ticks", WorkerMetrics(CollectorRegistry()))
    contact.note(None)
    import time

    now = time.monotonic()
    monkeypatch.setattr("tickkeeper.worker.contact.time.monotonic", lambda: now + 60)
    assert contact.fault == "redis: silent for 60 s"


@pytest.mark.parametrize("after", [0, 1_772_000_000_000, 1_774_745_000_000, 1_792_890_000_000])
def test_d11_d12_cron_is_the_operators(after):
    opts = {"pattern": "30 2 * * *", "tz": "Europe/Stockholm"}
    assert repeat_strategy(after, opts) == next_fire_ms("30 2 * * *", "Europe/Stockholm", after)


def test_cron_of_applications():
    assert repeat_strategy(0, {"every": 5}) is None
    assert repeat_strategy(1_000, {"pattern": "*/5 * * * * *"}) == 5_000
    assert repeat_strategy(0, {"pattern": "* * * * *", "startDate": 600_000}) == 660_000
    assert repeat_strategy(0, {"pattern": "* * * * *", "immediately": True}) > 1_700_000_000_000
