import json
import os
from pathlib import Path

import pytest

from embedded import MissingPart
from embedded import kubernetes_assets as assets
from embedded.kubernetes import KubeApi


def test_an_unprivileged_user_may_do_what_rbac_grants_and_nothing_else(kube_api):
    jane = kube_api.user("jane:o", groups=("developers", "on-call"))
    said = json.loads(kube_api.kubectl("auth", "whoami", "-o", "json", kubeconfig=jane))
    assert said["status"]["userInfo"]["username"] == "jane:o"
    assert said["status"]["userInfo"]["groups"] == ["developers", "on-call", "system:authenticated"]
    refused = kube_api.try_kubectl("get", "secrets", kubeconfig=jane)
    assert refused.returncode == 1
    assert "forbidden" in refused.stderr
    kube_api.kubectl("create", "role", "reader", "--verb=list", "--resource=secrets")
    kube_api.kubectl("create", "rolebinding", "readers", "--role=reader", "--group=on-call")
    kube_api.kubectl("get", "secrets", kubeconfig=jane)
    assert kube_api.try_kubectl("get", "pods", kubeconfig=jane).returncode == 1


def test_a_service_account_has_its_own_name_and_namespace(kube_api):
    for _ in range(2):  # the second time both are there already
        account = kube_api.service_account_kubeconfig("team-a", "operator")
    said = json.loads(kube_api.kubectl("auth", "whoami", "-o", "json", kubeconfig=account))
    assert said["status"]["userInfo"]["username"] == "system:serviceaccount:team-a:operator"
    assert kube_api.try_kubectl("get", "pods", "-n", "team-a", kubeconfig=account).returncode == 1


def test_what_is_stored_survives_kill_and_restart_on_the_same_port():
    with KubeApi() as server:
        before = server.kubeconfig.read_text()
        server.kubectl("create", "configmap", "kept", "--from-literal=a=1")
        server.kill()
        assert not server.running
        server.start()
        assert server.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "1"
        server.stop()
        server.start()
        assert server.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "1"
        assert server.kubeconfig.read_text() == before
        server.freeze()
        try:
            assert server.try_kubectl("get", "ns", "--request-timeout=1s").returncode == 1
        finally:
            server.thaw()
        folder = server._folder
    assert not folder.exists()


def test_credentials_are_readable_by_their_owner_only(kube_api):
    secret = [kube_api.kubeconfig, *kube_api._folder.glob("*.key")]
    assert len(secret) > 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*secret, kube_api._folder))


def test_kubectl_writes_nothing_into_the_home_folder(kube_api, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    kube_api.kubectl("get", "namespaces")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_assets(monkeypatch, tmp_path) -> Path:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def test_with_nothing_to_get_it_with_one_line_names_the_remedy(no_assets):
    for get in (assets.find_assets, assets.prepare_assets):
        with pytest.raises(MissingPart, match=r"^no kube-apiserver found .*: set KUBEBUILDER_ASSETS .* or go .*$"):
            get()


def test_a_folder_that_lacks_a_program_is_named(no_assets, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(no_assets))
    _script(no_assets / "etcd", "exit 0")
    with pytest.raises(MissingPart, match=r"^KUBEBUILDER_ASSETS=.* has no executable kube-apiserver and no kubectl$"):
        assets.prepare_assets()


def test_setup_envtest_is_asked_before_a_build_and_only_once(no_assets, tmp_path):
    downloaded = tmp_path / "downloaded"
    downloaded.mkdir()
    for name in assets.PROGRAMS:
        _script(downloaded / name, "exit 0")
    _script(no_assets / "go", "echo go must not be asked >&2; exit 1")
    _script(no_assets / "setup-envtest", f"echo $@ >>{tmp_path}/asked; mkdir -p $4; printf %s {downloaded}")
    with pytest.raises(MissingPart, match="not built yet"):
        assets.find_assets()
    folder = assets.prepare_assets()
    assert sorted(path.name for path in folder.iterdir()) == sorted(assets.PROGRAMS)
    assert all(os.access(folder / name, os.X_OK) for name in assets.PROGRAMS)
    assert assets.prepare_assets() == assets.find_assets() == folder
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


def test_where_setup_envtest_cannot_download_it_is_built(no_assets, tmp_path, capfd):
    _script(no_assets / "setup-envtest", "echo no route to host >&2; exit 2")
    _script(no_assets / "go", f'echo "$@" >>{tmp_path}/built; while [ "$1" != -o ]; do shift; done; echo >"$2"')
    folder = assets.prepare_assets()
    assert sorted(path.name for path in folder.iterdir()) == sorted(assets.PROGRAMS)
    built = (tmp_path / "built").read_text().splitlines()
    assert len(built) == 3
    assert all("-mod=readonly" in line for line in built)
    assert "setup-envtest failed (exit 2): no route to host" in capfd.readouterr().err


def test_a_build_that_fails_says_how_and_leaves_nothing(no_assets, tmp_path):
    _script(no_assets / "go", "echo 'go.mod requires go >= 1.26.0 (running go 1.20)' >&2; exit 1")
    with pytest.raises(Exception, match=r"go build k8s.io/kubernetes/cmd/kube-apiserver failed.*requires go >= 1.26"):
        assets.prepare_assets()
    assert [path.suffix for path in (tmp_path / "cache" / "tickkeeper").iterdir()] == [".lock"]


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
    path.chmod(0o755)
