"""The worker's configuration, and how its faults are told."""

import sys
from datetime import timedelta

import pytest
import typer

from tickkeeper.cli._config import load
from tickkeeper.cli.worker import worker
from tickkeeper.worker.settings import WorkerSettings

REQUIRED = {
    "TICKKEEPER_REDIS_URL": "redis://:hunter2@localhost:6379/0",
    "TICKKEEPER_DATABASE_URL": "postgresql://app:hunter2@localhost/app",
}


@pytest.fixture
def environment(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith("TICKKEEPER_"):
            monkeypatch.delenv(name)

    def set_all(**given):
        for name, value in {**REQUIRED, **{f"TICKKEEPER_{k}": v for k, v in given.items()}}.items():
            monkeypatch.setenv(name, value)

    return set_all


def test_defaults(environment):
    environment()
    settings = load(WorkerSettings)
    assert settings.queue_names == ("ticks",)
    assert settings.queue_options().for_bullmq() == {
        "prefix": "bull",
        "concurrency": 10,
        "lockDuration": 30_000,
        "lockRenewTime": 15_000,
        "stalledInterval": 30_000,
        "maxStalledCount": 1,
        "runRetryDelay": 200,
        "name": settings.queue_options().worker_name,
        "removeOnComplete": {"count": 100, "age": 86_400},
        "removeOnFail": {"count": 1_000, "age": 604_800},
    }
    assert settings.limits().budget == timedelta(seconds=30)
    assert settings.limits().lease is None


def test_options_win_over_the_environment_and_lists_take_commas(environment):
    environment(QUEUES="a, b,,a", CONCURRENCY="3", HANDLERS="x.y,z", LOG_LEVEL="DEBUG", DEFAULT_TENANT="", ROUTES="")
    settings = load(WorkerSettings, concurrency=5, queue=["c"], handlers=None)
    assert settings.queue_names == ("c",)
    assert load(WorkerSettings).queue_names == ("a", "b")
    assert settings.concurrency == 5
    assert settings.handlers == ("x.y", "z")
    assert settings.log_level == "debug"
    assert settings.default_tenant is None
    assert settings.routes is None


def test_renewal_follows_the_lock(environment):
    environment(LOCK_DURATION_MS="1000")
    assert load(WorkerSettings).queue_options().for_bullmq()["lockRenewTime"] == 500
    assert load(WorkerSettings).running_ttl == 31
    assert load(WorkerSettings, running_ttl_seconds=5).running_ttl == 5


def _faults(capsys, **options):
    with pytest.raises(typer.Exit) as caught:
        load(WorkerSettings, **options)
    assert caught.value.exit_code == 2
    told = capsys.readouterr().err
    assert "hunter2" not in told
    return told.splitlines()


def test_nothing_set_names_every_variable_that_is_needed(environment, capsys):
    assert _faults(capsys) == [
        "tickkeeper: TICKKEEPER_REDIS_URL is not set",
        "tickkeeper: TICKKEEPER_DATABASE_URL is not set",
    ]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("CONCURRENCY", "abc", "TICKKEEPER_CONCURRENCY=abc: Input should be a valid integer"),
        ("CONCURRENCY", "0", "TICKKEEPER_CONCURRENCY=0: Input should be greater than or equal to 1"),
        ("CONCURRENCY", "1.5", "TICKKEEPER_CONCURRENCY=1.5: Input should be a valid integer"),
        ("GRACE_SECONDS", "-1", "TICKKEEPER_GRACE_SECONDS=-1: Input should be greater than or equal to 1"),
        ("GRACE_SECONDS", "nan", "TICKKEEPER_GRACE_SECONDS=nan: "),
        ("HTTP_PORT", "99999", "TICKKEEPER_HTTP_PORT=99999: "),
        ("LOG_LEVEL", "loud", "TICKKEEPER_LOG_LEVEL=loud: "),
        ("QUEUE", "a:b", "TICKKEEPER_QUEUE"),
        ("QUEUE", " , ", "TICKKEEPER_QUEUE= , : "),
        ("REDIS_URL", "http://:hunter2@h/", "TICKKEEPER_REDIS_URL: url must begin with one of redis://"),
        ("REDIS_URL", "redis://:hunter2@h:99999/", "TICKKEEPER_REDIS_URL: url must have a port"),
        ("REDIS_URL", "hunter2", "TICKKEEPER_REDIS_URL: url must begin with"),
        (
            "DATABASE_URL",
            "host=h password=hunter2 nonsense",
            "TICKKEEPER_DATABASE_URL: the database's connection string ",
        ),
        ("ROUTES", "/no/such/file", "TICKKEEPER_ROUTES=/no/such/file: cannot be read: No such file"),
        ("REDIS_CA_FILE", "/no/such/file", "TICKKEEPER_REDIS_CA_FILE=/no/such/file: cannot be read"),
        ("STORE", "other", "TICKKEEPER_STORE=other: Input should be 'tickkeeper'"),
        ("DATABASE_SCHEMA", "", "TICKKEEPER_DATABASE_SCHEMA=: "),
    ],
)
def test_a_fault_names_its_variable_and_shows_no_secret(environment, capsys, name, value, says):
    environment(**{name: value})
    [line] = _faults(capsys)
    assert line.startswith(f"tickkeeper: {says}")


def test_one_line_a_fault(environment, capsys):
    environment(CONCURRENCY="x", HTTP_PORT="y")
    assert len(_faults(capsys)) == 2


def test_a_renewal_that_loses_locks_is_refused(environment, capsys):
    environment(LOCK_DURATION_MS="1000", LOCK_RENEW_MS="900")
    [line] = _faults(capsys)
    assert "TICKKEEPER_LOCK_RENEW_MS=900: must be at most half of TICKKEEPER_LOCK_DURATION_MS=1000" in line


def test_a_lock_longer_than_the_stalled_interval_is_refused(environment, capsys):
    environment(STALLED_INTERVAL_MS="5000", LOCK_RENEW_MS="20000")
    renew, stalled = _faults(capsys)
    assert "TICKKEEPER_LOCK_RENEW_MS=20000" in renew
    assert "TICKKEEPER_STALLED_INTERVAL_MS=5000: must be at least TICKKEEPER_LOCK_DURATION_MS=30000" in stalled


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HANDLERS", "no.such.module", "TICKKEEPER_HANDLERS: no.such.module: ModuleNotFoundError: No module named"),
        ("HANDLERS", "json", "TICKKEEPER_HANDLERS: json: no function marked with @handler"),
        ("HANDLERS", "leaky", "TICKKEEPER_HANDLERS: leaky: ValueError: cannot reach ***"),
        ("ROUTES", "routes.yaml", "TICKKEEPER_ROUTES=routes.yaml: routes.0.url (line 2): must be http://host/"),
    ],
)
def test_handlers_and_routes_that_cannot_be_used_are_told_before_anything_starts(
    environment, capsys, monkeypatch, tmp_path, name, value, says
):
    (tmp_path / "leaky.py").write_text("raise ValueError('cannot reach hunter2')\n")
    (tmp_path / "routes.yaml").write_text("routes:\n - {kinds: a, url: ftp://x/}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", sys.path[:])
    monkeypatch.setattr("tickkeeper.worker.process.run", lambda *_: pytest.fail("it was started"))
    environment(**{name: value})
    with pytest.raises(typer.Exit) as caught:
        worker()
    assert caught.value.exit_code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tickkeeper: {says}")


def test_secrets_are_known_to_the_logs(environment):
    environment(REDIS_PASSWORD="other")
    assert set(load(WorkerSettings).secrets) == {*REQUIRED.values(), "other"}
    assert "hunter2" not in repr(load(WorkerSettings))


def test_the_help_names_each_options_variable_and_default():
    from typing import get_type_hints

    fields = WorkerSettings.model_fields
    for name, hint in get_type_hints(worker, include_extras=True).items():
        if name == "return":
            continue
        said = hint.__metadata__[0].help
        variable = "TICKKEEPER_QUEUES" if name == "queue" else f"TICKKEEPER_{name.upper()}"
        default = "ticks" if name == "queue" else fields[name].default
        expected = f" {variable}." if default in (None, ()) else f" {variable}; default: {default}."
        assert said.endswith(expected), name


def test_the_schema_follows_the_store(environment):
    environment()
    assert load(WorkerSettings).schema_name == "tickkeeper"
    assert load(WorkerSettings, store="mnemora").schema_name == "public"
    assert load(WorkerSettings, store="mnemora", database_schema="memory").schema_name == "memory"


def test_transactional_handlers_are_refused_where_the_store_has_none(environment, monkeypatch):
    import types

    from tickkeeper.worker import handler
    from tickkeeper.worker.handlers import HandlerError
    from tickkeeper.worker.http_route import HttpDelivery
    from tickkeeper.worker.process import build_registry

    @handler("embed", transaction=True)
    async def embed(row, connection):
        pass

    module = types.ModuleType("app_with_transactions")
    module.embed = embed
    monkeypatch.setitem(sys.modules, "app_with_transactions", module)
    environment(HANDLERS="app_with_transactions")
    assert build_registry(load(WorkerSettings), HttpDelivery()).transactional
    with pytest.raises(HandlerError, match=r"embed: transaction=True is not to be had with TICKKEEPER_STORE=mnemora"):
        build_registry(load(WorkerSettings, store="mnemora"), HttpDelivery())


def test_two_routes_of_a_kind_are_a_fault_of_the_routes_file(environment, tmp_path):
    from tickkeeper.worker.http_route import HttpDelivery
    from tickkeeper.worker.process import build_registry
    from tickkeeper.worker.routes import RoutesError

    path = tmp_path / "routes.yaml"
    path.write_text("routes:\n - {kinds: a, url: http://one/}\n - {kinds: [b, a], url: http://two/}\n")
    environment(ROUTES=str(path))
    with pytest.raises(RoutesError) as caught:
        build_registry(load(WorkerSettings), HttpDelivery())
    assert caught.value.faults == [
        "routes.1.kinds: kind 'a' has two handlers: route a to http://one/ and route b, a to http://two/"
    ]


def test_dead_heads_reach_the_store(environment, capsys):
    from tickkeeper.worker.process import build_store

    environment()
    assert not vars(build_store(load(WorkerSettings)))["_block"]
    environment(DEAD_HEADS="block")
    assert vars(build_store(load(WorkerSettings)))["_block"]
    with pytest.raises(typer.Exit):
        load(WorkerSettings, store="mnemora")
    assert "TICKKEEPER_DEAD_HEADS=block: must be skip with TICKKEEPER_STORE=mnemora" in capsys.readouterr().err
