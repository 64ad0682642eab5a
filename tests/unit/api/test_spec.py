import pytest

from tests.unit.api.case import Bad, Good, spec
from tests.unit.api.cron_cases import JUDGED_BY_OPERATOR
from tests.unit.api.spec_cases import CASES, REFUSED_BY_SERVER_ONLY
from tickkeeper.api.errors import InvalidSpec
from tickkeeper.api.spec import TickScheduleSpec, TickSpec
from tickkeeper.api.tick import TickOptions


@pytest.mark.parametrize("case", CASES + JUDGED_BY_OPERATOR + REFUSED_BY_SERVER_ONLY, ids=lambda case: case.name)
def test_model_keeps_every_rule(case: Good | Bad):
    if isinstance(case, Good):
        TickScheduleSpec.parse(case.spec)
        return
    with pytest.raises(InvalidSpec) as refused:
        TickScheduleSpec.parse(case.spec)
    assert case.field in [fault.path for fault in refused.value.faults]
    assert case.rule in str(refused.value)
    assert f"{case.field}: " in str(refused.value)
    assert str(refused.value).isprintable(), "one line, whatever the value holds"


def test_absent_fields_get_their_defaults():
    parsed = TickScheduleSpec.parse({"tenant": "acme", "jobName": "drain", "cron": {"pattern": "0 3 * * *"}})
    assert parsed.queue_name == "ticks"
    assert parsed.prefix == "bull"
    assert parsed.suspend is False
    assert parsed.concurrency_policy == "Forbid"
    assert parsed.deletion_policy == "Delete"
    assert parsed.cron is not None
    assert parsed.cron.time_zone == "UTC"
    assert parsed.data == {}
    assert parsed.tick == TickSpec()
    assert (parsed.every_ms, parsed.offset_ms, parsed.scheduler_id, parsed.redis) == (None, None, None, None)


def test_whole_numbers_come_out_as_integers():
    every = TickScheduleSpec.parse(spec(everyMs=100.0)).every_ms
    assert every == 100
    assert type(every) is int


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 10**400])
def test_numbers_that_are_none_are_refused_and_not_a_crash(number):
    with pytest.raises(InvalidSpec, match=r"^spec\.everyMs: "):
        TickScheduleSpec.parse(spec(everyMs=number))


def test_a_spec_must_be_there_and_be_an_object():
    with pytest.raises(InvalidSpec, match=r"^spec: is required$"):
        TickScheduleSpec.parse(None)
    with pytest.raises(InvalidSpec, match=r"^spec: invalid value 5: must be an object$"):
        TickScheduleSpec.parse(5)


def test_every_broken_rule_is_told():
    with pytest.raises(InvalidSpec) as refused:
        TickScheduleSpec.parse({"tenant": "a\nb", "everyMs": 9, "queueName": "a:b", "tick": {"batchSize": 0}})
    assert [(fault.path, fault.value) for fault in refused.value.faults] == [
        ("spec.tenant", "a\nb"),
        ("spec.everyMs", 9),
        ("spec.jobName", None),
        ("spec.queueName", "a:b"),
        ("spec.tick.batchSize", 0),
    ]


def test_rules_of_the_whole_object_are_told_together():
    with pytest.raises(InvalidSpec) as refused:
        TickScheduleSpec.parse(spec(cron={"pattern": "* * * * *"}, everyMs=100, offsetMs=101))
    assert str(refused.value) == (
        "spec: must have exactly one of everyMs and cron, not both; "
        "spec.offsetMs: invalid value 101: must be absent when cron is set: it shifts the ticks of everyMs only; "
        "spec.offsetMs: invalid value 101: must be at most everyMs"
    )


def test_tick_travels_as_it_was_written():
    tick = TickScheduleSpec.parse(
        spec(tick={"kinds": ["a", "b"], "leaseMs": 1000, "batchSize": 1.0, "timeBudgetMs": 10})
    ).tick
    assert tick.options() == TickOptions(kinds=("a", "b"), lease_ms=1000, batch_size=1, time_budget_ms=10)
    assert TickSpec().options() == TickOptions()


def test_specs_compare_by_content():
    assert TickScheduleSpec.parse(spec(everyMs=100)) == TickScheduleSpec.parse(spec(everyMs=100.0))
    assert TickScheduleSpec.parse(spec(everyMs=100)) != TickScheduleSpec.parse(spec(everyMs=101))
