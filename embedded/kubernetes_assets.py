"""Finding kube-apiserver, etcd and kubectl, or building them once.

The order: $KUBEBUILDER_ASSETS (the convention of controller tests); this project's cache; ``setup-envtest`` where it
can download; a build from Go modules (about 6 minutes on 2 cores with an empty Go cache). The last two fill the cache.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

from embedded.cache import cache_folder, cached, say
from embedded.errors import MissingPart, PartFailed

PROGRAMS = ("kube-apiserver", "etcd", "kubectl")

_GO = Path(__file__).parent / "go"
_STEPS_S = 15.0
_REMEDY = (
    "no kube-apiserver found and nothing to get one with: set KUBEBUILDER_ASSETS to a folder with "
    "kube-apiserver, etcd and kubectl, or put setup-envtest or go (>= 1.26) on PATH"
)


def find_assets() -> Path:
    """The folder that holds PROGRAMS, without building or downloading; MissingPart with the remedy."""
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        if missing := [name for name in PROGRAMS if not os.access(Path(named) / name, os.X_OK)]:
            raise MissingPart(f"KUBEBUILDER_ASSETS={named} has no executable {' and no '.join(missing)}")
        return Path(named)
    built = cache_folder() / _key()
    if built.is_dir():
        return built
    if shutil.which("setup-envtest") or shutil.which("go"):
        raise MissingPart("not built yet: `python -m embedded prepare kubernetes` does it, about 6 minutes on 2 cores")
    raise MissingPart(_REMEDY)


def prepare_assets() -> Path:
    """The folder that holds PROGRAMS, after a download or a build where needed, with progress on standard error."""
    if os.environ.get("KUBEBUILDER_ASSETS"):
        return find_assets()
    return cached(_key(), _make)


def asset_version(folder: Path) -> str:
    """E.g. ``1.36.3 (etcd 3.6.16)``."""
    return f"{_said_version(folder / 'kube-apiserver')} (etcd {_said_version(folder / 'etcd')})"


def _said_version(program: Path) -> str:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingPart(f"{program} does not run: {error}") from None
    found = re.search(r"\d+\.\d+\.\d+\S*", said)
    return found[0] if found else said.strip()


def _key() -> str:
    """Another version, machine or set of modules is another entry of the cache."""
    sums = b"".join((_GO / module / "go.sum").read_bytes() for module in ("kubernetes", "etcd"))
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return f"kubernetes-{_kubernetes_version()}-{machine}-{hashlib.sha256(sums).hexdigest()[:12]}"


def _kubernetes_version() -> str:
    found = re.search(r"^require k8s\.io/kubernetes v(\S+)$", (_GO / "kubernetes" / "go.mod").read_text(), re.MULTILINE)
    assert found, "embedded/go/kubernetes/go.mod requires no k8s.io/kubernetes"
    return found[1]


def _make(folder: Path) -> None:
    if not _download(folder):
        _build(folder)


def _download(folder: Path) -> bool:
    """Take the binaries that setup-envtest downloads; False where there is none or it cannot."""
    program = shutil.which("setup-envtest")
    if program is None:
        return False
    minor = ".".join(_kubernetes_version().split(".")[:2])
    say(f"setup-envtest use {minor}.x")
    argv: list[str | Path] = [program, "use", f"{minor}.x", "--bin-dir", folder / "envtest", "-p", "path"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"setup-envtest failed ({error})")
        return False
    made = Path(done.stdout.strip() or "/nonexistent")
    if done.returncode != 0 or not all((made / name).is_file() for name in PROGRAMS):
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        say(f"setup-envtest failed (exit {done.returncode}): {' '.join(last)}")
        return False
    for name in PROGRAMS:
        shutil.copy2(made / name, folder / name)
    _remove_read_only(folder / "envtest")
    return True


def _remove_read_only(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def _build(folder: Path) -> None:
    if shutil.which("go") is None:
        raise MissingPart(_REMEDY)
    version = _kubernetes_version()
    major, minor, _ = version.split(".", 2)
    base = "k8s.io/component-base/version"
    flags = f"-X {base}.gitVersion=v{version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
    say(f"building kube-apiserver {version}, kubectl and etcd from Go modules, once; about 6 minutes on 2 cores")
    started = time.monotonic()
    _go_build(folder, "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver", flags)
    _go_build(folder, "kubernetes", "k8s.io/kubernetes/cmd/kubectl", "kubectl", flags)
    _go_build(folder, "etcd", "go.etcd.io/etcd/server/v3", "etcd")
    say(f"built in {time.monotonic() - started:.0f} s")


def _go_build(folder: Path, module: str, package: str, name: str, flags: str = "") -> None:
    """Build one program; every module is held to the go.sum beside this file."""
    argv = ["go", "build", "-v", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", f"-s -w {flags}"]
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    go = subprocess.Popen(
        [*argv, "-o", str(folder / name), package],
        cwd=_GO / module,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert go.stderr is not None
    lines: list[str] = []
    done = threading.Event()
    progress = threading.Thread(target=_tell_progress, args=(name, lines, done), daemon=True)
    progress.start()
    try:
        with go.stderr:
            lines.extend(line.rstrip() for line in go.stderr)
        code = go.wait()
    finally:
        go.kill()  # of no effect on one that has ended; on Ctrl-C it must not go on
        go.wait()
        done.set()
        progress.join()
    if code != 0:
        raise PartFailed(f"go build {package} failed (exit {code}): {' | '.join(lines[-8:])}")


def _tell_progress(name: str, lines: list[str], done: threading.Event) -> None:
    started = time.monotonic()
    while not done.wait(_STEPS_S):
        loaded = sum(line.startswith("go: downloading") for line in lines)
        compiled = len(lines) - loaded
        say(f"{name}: {loaded} modules loaded, {compiled} packages compiled, {time.monotonic() - started:.0f} s")
