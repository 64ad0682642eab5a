import json
import shutil
from pathlib import Path

import pytest

from embedded import MissingPart, PartFailed
from embedded.node import NodeProject, find_node
from embedded.process import wait_for


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project whose one package lies beside it, so that nothing is downloaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package, folder = tmp_path / "greeter", tmp_path / "project"
    package.mkdir()
    folder.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "greeter", "version": "1.0.0", "main": "index.js"}))
    (package / "index.js").write_text("module.exports = (name) => `hello ${name}`\n")
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {"greeter": f"file:{package}"}}))
    (folder / "greet.mjs").write_text('import greet from "greeter"\nconsole.log(greet(process.argv[2]))\n')
    (folder / "fail.cjs").write_text('console.error("no such tenant"); process.exit(4)\n')
    (folder / "wait.mjs").write_text('import "greeter"\nconsole.log("up"); setInterval(() => {}, 1000)\n')
    return folder


def test_a_script_finds_its_packages_and_nothing_is_written_into_the_folder(project):
    before = sorted(path.name for path in project.iterdir())
    with NodeProject(project) as node:
        assert node.run("greet.mjs", "acme") == "hello acme\n"
        with pytest.raises(PartFailed, match=r"node fail.cjs \(exit 4\): no such tenant"):
            node.run("fail.cjs")
    assert sorted(path.name for path in project.iterdir()) == before


def test_packages_are_installed_once_per_content_of_package_json(project, monkeypatch):
    with NodeProject(project) as node:
        first = node.prepare()
        assert not (first / "package-lock.json").exists()
    monkeypatch.setattr(shutil, "which", lambda name: pytest.fail("npm was looked for again"))
    assert NodeProject(project).prepare() == first
    monkeypatch.undo()


def test_a_script_can_run_as_a_process(project, tmp_path):
    with NodeProject(project) as node:
        process = node.process("wait.mjs", log=tmp_path / "log")
        process.start()
        wait_for(lambda: "up" in (tmp_path / "log").read_text(), seconds=30, what="the script is up")
        assert process.running
        process.stop()
        assert not process.running


def test_a_missing_or_old_node_is_one_line_that_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPart, match=r"^no node found: Node.js >= 20 with npm is needed: install it .*$"):
        find_node()
    (tmp_path / "node").write_text("#!/bin/sh\necho v14.1.0\n")
    (tmp_path / "node").chmod(0o755)
    with pytest.raises(MissingPart, match=r"node is 14\.1\.0: Node.js >= 20"):
        find_node()
