"""When the outbox is sampled, by whom, and what the gauges show of it."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tickkeeper.bullmq.tenants import Scheduled, tenant_of
from tickkeeper.outbox import StoreUnavailable
from tickkeeper.outbox.sampler import Holder, Sample
from tickkeeper.telemetry import outbox as gauges_module
from tickkeeper.telemetry.outbox import GAUGES, STATES, OutboxGauges
from tickkeeper.worker import sampling
from tickkeeper.worker.sampling import OutboxWatch, Schedules, figures, rows, without_schedule

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
SAMPLE = Sample(ready=3, dead=2, tenants=("acme", "forgotten"), oldest_due=1.5, took=0.01, taken_at=7.0)


class FakeSampler:
    """Gives what it was told to give, in turn; the last one for ever."""

    def __init__(self, *answers: Sample | Exception | None) -> None:
        self.answers = list(answers)
        self.asked_at: list[float] = []
        self.asked = asyncio.Semaphore(0)

    async def now(self) -> float:
        return 1_000_000.0 + asyncio.get_running_loop().time()

    async def sample(self) -> Sample | None:
        self.asked_at.append(await self.now())
        self.asked.release()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Schedules of acme only; how they were asked for."""
    calls: list[dict[str, Any]] = []

    async def scheduled(client: Any, prefix: str, names: Any, *, more: bool) -> Scheduled:
        calls.append({"names": set(names), "more": more})
        return Scheduled(frozenset({"acme"}), 0, ("ticks", "others"))

    monkeypatch.setattr(sampling, "scheduled", scheduled)
    return calls


def shown(registry: CollectorRegistry) -> dict[str, float]:
    lines = [line for line in generate_latest(registry).decode().splitlines() if line.startswith("tickkeeper_outbox")]
    told = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    return {name: value for name, value in told.items() if "samples_created" not in name}


async def watched(watch: OutboxWatch, sampler: FakeSampler, turns: int) -> None:
    """Run it until the sampler was asked ``turns`` times, and all was done with the answers."""
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(30):
        for _ in range(turns + 1):
            await sampler.asked.acquire()
    running.cancel()
    await asyncio.wait({running})


def watch_of(sampler: FakeSampler, registry: CollectorRegistry, *, period: float = 0.05) -> OutboxWatch:
    nothing: Any = None
    return OutboxWatch(sampler, OutboxGauges(registry), Schedules(nothing, "bull", ("ticks",)), period=period)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_OTHERS_FROM", 0.01)
    monkeypatch.setattr(sampling, "_OTHERS_TO", 0.02)


async def test_a_sample_is_shown(registry: CollectorRegistry, asked: list[dict[str, Any]]) -> None:
    sampler = FakeSampler(SAMPLE)
    await watched(watch_of(sampler, registry), sampler, 1)
    told = shown(registry)
    assert told['tickkeeper_outbox_rows{state="ready"}'] == 3
    assert told['tickkeeper_outbox_rows{state="dead"}'] == 2
    assert told["tickkeeper_outbox_oldest_due_age_seconds"] == 1.5
    assert told["tickkeeper_outbox_tenants"] == 2
    assert told["tickkeeper_outbox_tenants_without_schedule"] == 1
    assert told['tickkeeper_outbox_samples_total{outcome="taken"}'] >= 1


async def test_slots_are_the_databases(registry: CollectorRegistry, asked: list[dict[str, Any]]) -> None:
    """Whoever has the turn asks at a multiple of the period by the database's clock, and once in it."""
    sampler = FakeSampler(SAMPLE)
    await watched(watch_of(sampler, registry, period=0.2), sampler, 4)
    slots = [int(at / 0.2) for at in sampler.asked_at]
    assert len(set(slots)) == len(slots)


async def test_another_worker_has_the_turn(registry: CollectorRegistry, asked: list[dict[str, Any]]) -> None:
    sampler = FakeSampler(SAMPLE, None)
    await watched(watch_of(sampler, registry), sampler, 2)
    assert not any(name.startswith("tickkeeper_outbox_rows") for name in shown(registry))
    assert shown(registry)['tickkeeper_outbox_samples_total{outcome="elsewhere"}'] >= 1


async def test_faults_do_not_end_it(registry: CollectorRegistry, asked: list[dict[str, Any]]) -> None:
    sampler = FakeSampler(StoreUnavailable("away"), RuntimeError("odd"), SAMPLE)
    await watched(watch_of(sampler, registry), sampler, 3)
    told = shown(registry)
    assert told['tickkeeper_outbox_samples_total{outcome="failed"}'] == 2
    assert told['tickkeeper_outbox_rows{state="ready"}'] == 3


async def test_without_redis_the_rest_is_shown(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scheduled(*_: Any, **__: Any) -> Scheduled:
        raise ConnectionError

    monkeypatch.setattr(sampling, "scheduled", scheduled)
    sampler = FakeSampler(SAMPLE)
    await watched(watch_of(sampler, registry), sampler, 1)
    told = shown(registry)
    assert told["tickkeeper_outbox_tenants"] == 2
    assert "tickkeeper_outbox_tenants_without_schedule" not in told


async def test_other_queues_are_looked_for_now_and_then(
    registry: CollectorRegistry, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_QUEUES_EVERY", 2)
    sampler = FakeSampler(SAMPLE)
    await watched(watch_of(sampler, registry), sampler, 3)
    assert [call["more"] for call in asked[:3]] == [True, False, True]
    assert asked[0]["names"] == {"ticks"}
    assert asked[1]["names"] == {"ticks", "others"}


def test_old_figures_are_not_shown(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = OutboxGauges(registry)
    gauges.show(rows(SAMPLE), figures(SAMPLE, 0))
    assert len(shown(registry)) >= len(STATES)
    monkeypatch.setattr(gauges_module, "_FRESH", -1.0)
    assert shown(registry) == {}


def test_the_series_are_few_and_every_figure_has_a_gauge(registry: CollectorRegistry) -> None:
    gauges = OutboxGauges(registry)
    many = Sample(tenants=tuple(f"t{number}" for number in range(20_000)), holders=(Holder("session", 1, "x", 5, 2.0),))
    gauges.show(rows(many), figures(many, 20_000))
    assert set(figures(many, 1)) == set(GAUGES)
    assert set(rows(many)) == set(STATES)
    assert len(shown(registry)) == len(STATES) + len(GAUGES)


def test_the_metrics_are_documented(registry: CollectorRegistry) -> None:
    gauges = OutboxGauges(registry)
    gauges.show(rows(SAMPLE), figures(replace(SAMPLE, holders=(Holder("session", 1, "x", 5, 2.0),)), 1))
    exported = {family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()}
    text = DOCS.read_text().split("## Outbox\n")[1].split("\nBoth processes")[0]
    assert exported == set(re.findall(r"^\| (tickkeeper_\w+) \|", text, re.MULTILINE))


def test_the_horizon() -> None:
    none = figures(Sample(), 0)
    assert (none["xmin_age_transactions"], none["xmin_age_seconds"]) == (0, 0.0)
    seen = figures(Sample(holders=(Holder("session", 1, "", 5, 2.0), Holder("session", 2, "", 9, None))), 0)
    assert (seen["xmin_age_transactions"], seen["xmin_age_seconds"]) == (9, 2.0)
    unseen = figures(Sample(holders=(Holder("session", 2, "", 9, None),)), 0)
    assert (unseen["xmin_age_transactions"], unseen["xmin_age_seconds"]) == (9, None)


def test_tenants_that_could_not_be_asked_for_are_not_told_as_none() -> None:
    assert figures(Sample(exact=False, every_tenant=False), None)["tenants"] is None
    assert figures(Sample(), None)["tenants"] == 0


def test_ticks_without_a_tenant() -> None:
    found = Scheduled(frozenset({"a"}), nameless=1)
    assert without_schedule(["a", "b", "c"], found, "b") == ["c"]
    assert without_schedule(["a", "b"], found, None) == ["b"]
    assert without_schedule(["a", "b"], Scheduled(frozenset({"a"})), "b") == ["b"]


@pytest.mark.parametrize(
    ("data", "tenant"),
    [
        ('{"tenantId": "acme"}', "acme"),
        ('{"tenantId": ""}', None),
        ('{"tenantId": 5}', None),
        ("{}", None),
        ("[]", None),
        ("{", None),
        ("[" * 100_000, None),
    ],
)
def test_tenants_of_schedulers(data: str, tenant: str | None) -> None:
    assert tenant_of(data) == tenant
