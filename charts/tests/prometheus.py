"""Prometheus' own evaluator of expressions, built once from its Go module (about a minute on 2 cores)."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from embedded.cache import cached, say
from embedded.errors import MissingPart, PartFailed

_SOURCE = Path(__file__).parent / "promql"


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: dict[str, str]
    value: float


class Question(NamedTuple):
    """An expression at a moment; ``series`` in the notation of Prometheus' rule tests, one sample a ``step``."""

    expr: str
    series: dict[str, str]
    seconds: float
    step: str = "15s"


def ask(questions: list[Question]) -> list[list[Sample]]:
    """What each expression gives. Raises PartFailed with Prometheus' words for one that it cannot read."""
    given = json.dumps([{"series": _load(each), "expr": each.expr, "seconds": each.seconds} for each in questions])
    done = subprocess.run(  # noqa: S603
        [_program()], input=given, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise PartFailed(done.stderr.strip())
    answers: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return [[Sample(each["labels"], each["value"]) for each in answer] for answer in answers]


def _load(question: Question) -> str:
    return "\n".join([f"load {question.step}", *(f"  {name} {values}" for name, values in question.series.items())])


def _program() -> Path:
    sources = b"".join((_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    return cached(f"promql-{hashlib.sha256(sources).hexdigest()[:12]}", _build) / "promql"


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise MissingPart("the alerts are judged by Prometheus' own code: put go (>= 1.26) on PATH, it is built once")
    say("building Prometheus' evaluator of expressions from Go modules, once; about a minute on 2 cores")
    argv = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
    done = subprocess.run(  # noqa: S603
        [*argv, "-o", str(folder / "promql"), "."],
        cwd=_SOURCE,
        env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    if done.returncode != 0:
        raise PartFailed(f"go build: {done.stderr.strip()[-2000:]}")
