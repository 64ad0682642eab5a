import pytest

from embedded.__main__ import main


def test_every_part_is_listed_with_its_version_and_place(capsys, monkeypatch, tmp_path):
    fake = tmp_path / "redis-server"
    fake.write_text("#!/bin/sh\necho Redis server v=7.2.5 sha=0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("REDIS_SERVER", str(fake))
    main(["versions"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["redis", "postgresql", "kubernetes", "node"]
    assert lines[0].split() == ["redis", "7.2.5", f"({fake})"]


def test_a_missing_part_is_told_with_its_remedy_and_exit_1(capsys, monkeypatch):
    monkeypatch.setenv("REDIS_SERVER", "/nonexistent/redis-server")
    assert main(["versions"]) == 1
    assert "redis       missing: REDIS_SERVER=/nonexistent/redis-server is not" in capsys.readouterr().out
    assert main(["prepare", "redis"]) == 1
    assert capsys.readouterr().err == (
        "embedded: REDIS_SERVER=/nonexistent/redis-server is not a redis-server >= 6.2 that runs here\n"
    )


@pytest.mark.parametrize("argv", [[], ["frobnicate"], ["versions", "redis"]])
def test_wrong_usage_is_exit_2(argv, capsys):
    assert main(argv) == 2
    assert "usage: python -m embedded versions" in capsys.readouterr().err


def test_an_unknown_part_is_named(capsys):
    assert main(["prepare", "mongodb"]) == 1
    assert "no part is called 'mongodb': they are redis, postgresql, kubernetes, node" in capsys.readouterr().err
