"""docs/install.md and docs/uninstall.md, as a new user pastes them."""

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from e2e import image
from e2e.cluster import Cluster
from e2e.settings import ROOT, Settings
from embedded.process import wait_for

CRD = "tickschedules.tickkeeper.dev"


class Pasted:
    """Runs what a document says, with the images of this run in place of those that it names."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._env = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
        repository, _, tag = settings.image.rpartition(":")
        self._here = {
            "registry.example.org/tickkeeper --set image.tag=0.1.0": f"{repository} --set image.tag={tag}",
            **{
                f"--set trial.{part}.enabled=true": f"--set trial.{part}.enabled=true --set trial.{part}.image={name}"
                f" --set trial.{part}.runAsUser={image.user_of(name, part)}"
                for part, name in (("redis", settings.redis_image), ("postgres", settings.postgres_image))
            },
        }

    def blocks(self, document: str, section: str) -> list[str]:
        """The commands of one section, block by block."""
        text = (ROOT / "docs" / document).read_text(encoding="utf-8")
        found = re.search(rf"^#+ {re.escape(section)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
        assert found, f"docs/{document} has no section {section}"
        return re.findall(r"^```sh\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)

    def run(self, block: str) -> str:
        """Paste one block into a shell in the checkout."""
        for said, here in self._here.items():
            block = block.replace(said, here)
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail"],
            input=block,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=self._env,
            timeout=400,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def pasted(cluster: Cluster, settings: Settings) -> Iterator[Pasted]:
    """Where neither CRD nor namespace is: a new user's cluster."""
    cluster.kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=60s")
    yield Pasted(cluster, settings)
    cluster.kubectl("delete", "namespace", "tickkeeper", "--ignore-not-found", "--wait=false")


def test_from_install_to_a_healed_flushall_and_away_again(pasted: Pasted, cluster: Cluster) -> None:
    install, test, schedule, row, wipe = pasted.blocks("install.md", "Try it")
    assert "helm test tickkeeper --namespace tickkeeper --logs" in pasted.run(install)
    assert "passed" in pasted.run(test)
    assert re.search(r"acme-drain +acme +5000 +ticks +True", pasted.run(schedule))
    assert "delivered acme mail.welcome {'user': 42}" in pasted.run(row)
    said = pasted.run(wipe)
    assert re.search(r"Normal +Healed +tickschedule/acme-drain", said)
    assert re.search(r"acme-drain +acme +5000 +ticks +True +True +Ready +1 ", said)

    (away,) = pasted.blocks("uninstall.md", "Uninstall")
    pasted.run(away)
    assert cluster.get("crd", CRD) is not None
    assert cluster.list("tickschedules") == []
    cluster.kubectl("delete", "namespace", "tickkeeper", "--wait=false")
    wait_for(lambda: cluster.get("namespace", "tickkeeper") is None, seconds=120, what="all is gone", interval=0.5)
