"""Every rule of the CRD on a real API server, and both judges side by side."""

import random
import string

import pytest
from kubernetes import client

from embedded.kubernetes import KubeApi
from tests.integration.api.judging import Judge
from tests.unit.api.case import Bad, Good, cron, spec
from tests.unit.api.cron_cases import JUDGED_BY_OPERATOR
from tests.unit.api.spec_cases import CASES, REFUSED_BY_SERVER_ONLY
from tickkeeper.api.errors import InvalidSpec
from tickkeeper.api.spec import TickScheduleSpec

HUNDRED = """\
apiVersion: tickkeeper.dev/v1alpha1
kind: TickSchedule
metadata: {name: case}
spec: {tenant: acme, jobName: drain, everyMs: 100.0}
"""


def _named(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@_named([case for case in CASES if isinstance(case, Good)])
def test_the_value_at_the_bound_passes(judge: Judge, case: Good):
    assert judge(case.spec).message == ""


@_named([case for case in CASES if isinstance(case, Bad)])
def test_the_value_beyond_is_refused_with_field_and_rule(judge: Judge, case: Bad):
    answer = judge(case.spec)
    assert answer.stored is None, "the API server let it in"
    blamed = [text for field, text in answer.refusals if _same_field(field, case.field)]
    assert any(case.server in text for text in blamed), answer.message
    assert f"{case.field}" in answer.message


def _same_field(server: str, field: str) -> bool:
    """The index of a duplicate is the server's own addition."""
    return server == field or server.startswith(f"{field}[")


@_named(JUDGED_BY_OPERATOR)
def test_what_cel_cannot_judge_is_let_in_and_left_to_the_operator(judge: Judge, case: Bad):
    assert judge(case.spec).message == ""
    with pytest.raises(InvalidSpec):
        TickScheduleSpec.parse(case.spec)


@_named(REFUSED_BY_SERVER_ONLY)
def test_what_cel_cannot_read_is_refused_with_the_reason(judge: Judge, case: Good):
    assert "invalid data, expected int, got float64 evaluating rule: must " in judge(case.spec).message
    TickScheduleSpec.parse(case.spec)


def test_kubectl_sends_a_whole_number_as_an_integer(kube_api: KubeApi, api_client: client.ApiClient):
    made = kube_api.kubectl("create", "--dry-run=server", "-o", "jsonpath={.spec.everyMs}", "-f", "-", stdin=HUNDRED)
    assert made == "100"


def _model_accepts(fields) -> bool:
    try:
        TickScheduleSpec.parse(fields)
    except InvalidSpec:
        return False
    return True


def test_both_judges_agree_case_by_case(judge: Judge):
    disagreements = [case.name for case in CASES if (judge(case.spec).stored is not None) != _model_accepts(case.spec)]
    assert disagreements == []


def test_what_is_stored_reads_as_what_was_meant(judge: Judge):
    """Defaults of the API server are those of the model."""
    for case in CASES:
        if isinstance(case, Good):
            stored = judge(case.spec).stored
            assert stored is not None
            assert TickScheduleSpec.parse(stored["spec"]) == TickScheduleSpec.parse(case.spec), case.name


def test_patterns_at_random_are_judged_alike(judge: Judge):
    """RE2 and Python's re read the grammar of cron alike: damaged patterns, none of which only cronsim could refuse."""
    chance = random.Random(20260329)
    seeds = [case.spec["cron"]["pattern"] for case in CASES if isinstance(case, Good) and "cron" in case.spec]
    outcomes = set()
    for _ in range(300):
        pattern = list(chance.choice([seed for seed in seeds if len(seed) < 60]))
        for _ in range(chance.randint(1, 2)):
            pattern.insert(chance.randrange(len(pattern) + 1), chance.choice("0123456789*/,#LWRHmonjan ?å"))
            if chance.random() < 0.5:
                del pattern[chance.randrange(len(pattern))]
        fields = spec(**cron("".join(pattern)))
        accepted = judge(fields).stored is not None
        try:
            TickScheduleSpec.parse(fields)
        except InvalidSpec as refusal:
            only_cronsim = "a pattern that fires" in str(refusal)
            assert accepted == only_cronsim, fields
        else:
            assert accepted, fields
        outcomes.add(accepted)
    assert outcomes == {True, False}, "the sample holds both"


def test_ids_at_random_are_judged_alike(judge: Judge):
    chance = random.Random(20261025)
    outcomes = set()
    for _ in range(150):
        length = chance.choice([1, 2, 3, 5, 8, 200, 255])
        letters = chance.choice([":0", ":a1", string.ascii_letters + ":-.", "aå\U0001f600"])
        fields = spec(schedulerId="".join(chance.choice(letters) for _ in range(length)))
        accepted = judge(fields).stored is not None
        assert accepted == _model_accepts(fields), fields
        outcomes.add(accepted)
    assert outcomes == {True, False}, "the sample holds both"
