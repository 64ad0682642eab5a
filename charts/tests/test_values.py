"""values.yaml, its schema and its documentation say the same."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from charts.tests import helm
from charts.tools.docs import generated
from charts.tools.values import CHART, load, read

TRIAL = helm.case("trial")
#: Values that Kubernetes judges: any key may be in them.
FREE = {"commonLabels", "resources", "strategy", "podSecurityContext", "securityContext", "labels"}


def _objects(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in FREE:
            yield from _objects(value, (*path, key))


def _leaves(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in FREE:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def _with(path: tuple[str, ...], key: str, value: Any) -> dict[str, Any]:
    values = copy.deepcopy(TRIAL)
    here = values
    for part in path:
        here = here.setdefault(part, {})
    here[key] = value
    return values


@pytest.mark.parametrize("path", list(_objects(load())), ids=".".join)
def test_a_misspelt_key_is_refused(path: tuple[str, ...]) -> None:
    with pytest.raises(helm.Refused, match="misspelt"):
        helm.render(_with(path, "misspelt", 1))


def test_a_misspelt_key_of_a_pool_is_refused() -> None:
    with pytest.raises(helm.Refused, match="replcas"):
        helm.render(TRIAL | {"workers": [{"name": "a", "replcas": 1}]})


@pytest.mark.parametrize(
    ("path", "key", "bad"),
    [
        ((), "workers", [{"queues": ["a"]}]),
        ((), "workers", [{"name": "Upper"}]),
        ((), "workers", [{"name": "a", "queues": ["a:b"]}]),
        ((), "workers", [{"name": "a", "store": "other"}]),
        ((), "workers", [{"name": "a", "leaseSeconds": 0.5}]),
        ((), "workers", [{"name": "a", "deadHeads": "wait"}]),
        (("operator",), "sweepSeconds", 0.1),
        (("operator",), "logLevel", "loud"),
        (("operator",), "replicas", -1),
        (("operator", "retention"), "completedCount", -1),
        (("image",), "digest", "sha256:short"),
        (("http",), "port", 80),
        (("allow",), "rules", [{"prefixes": ["a"]}]),
    ],
)
def test_a_value_out_of_bounds_is_refused(path: tuple[str, ...], key: str, bad: Any) -> None:
    with pytest.raises(helm.Refused, match=r"specifications of the schema"):
        helm.render(_with(path, key, bad))


def test_every_value_is_documented() -> None:
    documented = {value.path for value in read()[0]}
    assert set(_leaves(load())) == documented


def test_every_value_is_used() -> None:
    templates = "".join(file.read_text(encoding="utf-8") for file in (CHART / "templates").rglob("*") if file.is_file())
    for path in _leaves(load()):
        assert re.search(rf"\b{path[-1]}\b", templates), f"{'.'.join(path)} is used in no template"


@pytest.mark.parametrize("name", sorted(generated()))
def test_what_is_generated_is_up_to_date(name: str) -> None:
    assert (CHART / name).read_text(encoding="utf-8") == generated()[name], "run: make chart-docs"
