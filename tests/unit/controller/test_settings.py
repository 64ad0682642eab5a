import os
from pathlib import Path

import pytest
import typer

from tickkeeper.cli._config import load
from tickkeeper.controller.settings import OperatorSettings


@pytest.fixture
def environment(monkeypatch):
    for name in os.environ:
        if name.startswith("TICKKEEPER_"):
            monkeypatch.delenv(name)

    def put(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"TICKKEEPER_{name}", value)
        return load(OperatorSettings)

    return put


@pytest.fixture
def refused(environment, capsys):
    """The lines that a bad environment gets."""

    def put(**variables):
        with pytest.raises(typer.Exit) as raised:
            environment(**variables)
        assert raised.value.exit_code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()

    return put


def test_nothing_is_required(environment):
    settings = environment()
    assert settings.redis() is None
    assert settings.namespaces == ()
    assert settings.sweep_seconds == 5
    assert settings.deletion_grace_seconds == 60
    assert settings.retention().opts()["removeOnFail"] == {"count": 1000, "age": 604_800}
    assert not settings.allow().restricts
    assert settings.identity
    assert settings.secrets == ()


def test_everything_is_read(environment, tmp_path):
    (tmp_path / "allow.yaml").write_text("redisHosts: [redis.apps]\n")
    settings = environment(
        REDIS_URL="redis://:s3cret@own:6380/1",
        REDIS_USERNAME="tick",
        REDIS_PASSWORD="other-s3cret",
        NAMESPACES=" apps, other ,,",
        CLUSTER_ID="c-1",
        SWEEP_SECONDS="0.5",
        RETENTION_COMPLETED_COUNT="7",
        LOG_LEVEL="DEBUG",
        LOG_FORMAT="Console",
        LEADER_ELECTION="true",
        LEASE_NAMESPACE="home",
        POD_NAME="pod-1",
        ALLOW_FILE=str(tmp_path / "allow.yaml"),
    )
    assert str(settings.redis().address) == "redis://own:6380/1"
    assert (settings.redis().username, settings.redis().password.get_secret_value()) == ("tick", "other-s3cret")
    assert settings.namespaces == ("apps", "other")
    assert (settings.cluster_id, settings.sweep_seconds) == ("c-1", 0.5)
    assert settings.retention().completed_count == 7
    assert (settings.log_level, settings.log_format) == ("debug", "console")
    assert (settings.leader_election, settings.namespace_of_lease, settings.identity) == (True, "home", "pod-1")
    assert settings.allow().redis_hosts == ("redis.apps",)
    assert "s3cret" not in repr(settings)


def test_a_blank_variable_is_unset(environment):
    settings = environment(REDIS_URL="", REDIS_PASSWORD=" ", KUBECONFIG="", CLUSTER_ID="", ALLOW_FILE="", NAMESPACES="")
    assert settings.redis() is None
    assert (settings.kubeconfig, settings.cluster_id, settings.namespaces) == (None, None, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SWEEP_SECONDS", "soon"),
        ("SWEEP_SECONDS", "0.4"),
        ("SWEEP_SECONDS", "nan"),
        ("DELETION_GRACE_SECONDS", "-1"),
        ("HTTP_PORT", "65536"),
        ("HTTP_HOST", ""),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("RETENTION_COMPLETED_COUNT", "1.5"),
        ("RETENTION_FAILED_AGE_SECONDS", "0"),
        ("STATUS_WRITES_PER_SECOND", "0"),
        ("GRACE_SECONDS", "0"),
        ("MAX_LEN_EVENTS", "1"),
        ("REDIS_TIMEOUT_SECONDS", "99"),
        ("CLUSTER_ID", "x" * 129),
        ("LEADER_ELECTION", "perhaps"),
        ("LEASE_NAME", ""),
    ],
)
def test_a_bad_value_is_one_line_with_its_variable_and_value(refused, name, value):
    [line] = refused(**{name: value})
    assert line.startswith(f"tickkeeper: TICKKEEPER_{name}={value[:20]}")
    assert ": " in line.removeprefix("tickkeeper: ")


def test_each_fault_has_its_line(refused):
    lines = refused(SWEEP_SECONDS="soon", HTTP_PORT="-1", LOG_LEVEL="loud")
    assert len(lines) == 3
    assert {line.split("=")[0] for line in lines} == {
        "tickkeeper: TICKKEEPER_SWEEP_SECONDS",
        "tickkeeper: TICKKEEPER_HTTP_PORT",
        "tickkeeper: TICKKEEPER_LOG_LEVEL",
    }


@pytest.mark.parametrize(
    "url", ["hunter2", "http://:hunter2@h", "redis://:hunter2@", "redis://:hunter2@h/x", "redis://:hunter2@[::1"]
)
def test_a_bad_redis_url_is_told_without_its_password(refused, url):
    [line] = refused(REDIS_URL=url)
    assert "TICKKEEPER_REDIS_" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("name", ["REDIS_CA_FILE", "REDIS_CERT_FILE"])
def test_a_file_that_is_not_there_is_told_by_its_path(refused, name):
    lines = refused(REDIS_URL="rediss://h", REDIS_KEY_FILE="/nowhere/key.pem", **{name: "/nowhere/a.pem"})
    assert len(lines) == 1
    assert "TICKKEEPER_REDIS_" in lines[0]
    assert "/nowhere/" in lines[0]


def test_a_file_that_is_no_pem_is_told(refused, tmp_path: Path):
    odd = tmp_path / "ca.pem"
    odd.write_text("hunter2")
    [line] = refused(REDIS_URL="rediss://h", REDIS_CA_FILE=str(odd))
    assert "TICKKEEPER_REDIS_" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("text", ["hosts: []", "rules: [{}]", "rules:\n- namespaces: 5", "- a", "a: b: c", "5"])
def test_a_bad_allow_list_is_told_by_its_variable(refused, tmp_path: Path, text):
    file = tmp_path / "allow.yaml"
    file.write_text(text)
    lines = refused(ALLOW_FILE=str(file))
    assert lines
    assert all(line.startswith("tickkeeper: TICKKEEPER_ALLOW_FILE") for line in lines)


def test_an_empty_allow_list_allows_everything(environment, tmp_path: Path):
    file = tmp_path / "allow.yaml"
    file.write_text("")
    assert not environment(ALLOW_FILE=str(file)).allow().restricts


def test_an_allow_list_that_is_not_there_is_told(refused):
    [line] = refused(ALLOW_FILE="/nowhere/allow.yaml")
    assert line.startswith("tickkeeper: TICKKEEPER_ALLOW_FILE=/nowhere/allow.yaml")


def test_command_line_options_win(environment):
    environment(NAMESPACES="apps")
    assert load(OperatorSettings, namespaces=("other",), kubeconfig=None).namespaces == ("other",)
