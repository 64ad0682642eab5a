import pytest
from pydantic import ValidationError

from tickkeeper.api.spec import TickScheduleSpec
from tickkeeper.schedules.allow import AllowList


def spec(**changes):
    return TickScheduleSpec.parse({"tenant": "acme", "jobName": "drain", "everyMs": 10, **changes})


def refusal(allow, namespace="apps", host="redis.apps", **changes):
    return AllowList.model_validate(allow).refusal(namespace, spec(**changes), [(host, 6379)])


REFERENCE = {"redis": {"secretRef": {"name": "redis"}}}
ONE = {"rules": [{"namespaces": ["apps", "team-*"], "prefixes": ["apps"], "queueNames": ["ticks"]}]}


def test_without_a_list_everything_is_allowed():
    assert refusal({}) is None
    assert not AllowList().restricts


def test_hosts_are_those_of_secrets_not_the_operators_own():
    allow = {"redisHosts": ["*.apps", "10.0.0.1"]}
    assert refusal(allow, **REFERENCE) is None
    assert "redis.other" in refusal(allow, host="redis.other", **REFERENCE)
    assert refusal(allow, host="redis.other") is None
    assert "redis.apps.evil" in refusal(allow, host="redis.apps.evil", **REFERENCE)


def test_every_host_must_be_allowed():
    allow = AllowList.model_validate({"redisHosts": ["*.apps"]})
    told = allow.refusal("apps", spec(**REFERENCE), [("one.apps", 26379), ("two.other", 26379)])
    assert "two.other" in told


def test_a_namespace_that_no_rule_names_may_name_nothing():
    assert "other" in refusal(ONE, "other", prefix="apps")
    assert refusal(ONE, "team-a", prefix="apps") is None
    assert AllowList.model_validate(ONE).restricts


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"prefix": "theirs"}, "spec.prefix"), ({"prefix": "apps", "queueName": "theirs"}, "spec.queueName")],
)
def test_what_is_not_listed_is_refused_by_field_and_value(changes, field):
    told = refusal(ONE, **changes)
    assert told.startswith(f"{field}: theirs")
    assert "apps" in told


def test_explicit_ids_only():
    allow = {"rules": [{"namespaces": ["*"], "schedulerIds": ["apps:*"]}]}
    assert refusal(allow) is None, "a derived id is nobody else's"
    assert refusal(allow, schedulerId="apps:a") is None
    assert refusal(allow, schedulerId="theirs").startswith("spec.schedulerId: theirs")


def test_the_first_rule_that_matches_decides():
    allow = {"rules": [{"namespaces": ["apps"], "prefixes": ["a"]}, {"namespaces": ["*"], "prefixes": ["b"]}]}
    assert refusal(allow, prefix="a") is None
    assert refusal(allow, prefix="b") is not None
    assert refusal(allow, "x", prefix="b") is None


@pytest.mark.parametrize(
    "odd", [{"hosts": []}, {"rules": [{}]}, {"rules": [{"namespaces": []}]}, {"redisHosts": [""]}, {"rules": "all"}]
)
def test_a_list_that_says_something_else_is_refused(odd):
    with pytest.raises(ValidationError):
        AllowList.model_validate(odd)
