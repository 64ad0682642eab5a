"""Every alert fires on what it is for, and is silent where all is well. Judged by Prometheus' own evaluator."""

import json
import re
from typing import Any, NamedTuple

import pytest
import yaml

from charts.tests import helm
from charts.tests.prometheus import Question, ask
from charts.tools.values import CHART, load

ALERTS: dict[str, dict[str, Any]] = {
    each["alert"]: each for each in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
}
#: Twenty minutes of samples, each 15 s.
END = 20 * 60.0
N = 'namespace="tk"'
OVERDUE: int = load()["monitoring"]["prometheusRule"]["overdueSeconds"]
Series = dict[str, str]


class Case(NamedTuple):
    """Series on which an alert fires (with these labels), and series on which it does not."""

    fires: Series
    silent: Series
    labels: dict[str, str]


def steady(value: float) -> str:
    return f"{value}x80"


def growing(by: float) -> str:
    """A counter that grows by this with each sample."""
    return f"0+{by}x80"


def late(seconds: float) -> Series:
    """Ticks that all start between half of ``seconds`` and ``seconds`` late."""
    bounds = ("1", "5", "10", "30", "60", "120", "300", "+Inf")
    series = f'tickkeeper_tick_lag_seconds_bucket{{{N}, queue="q", le="%s"}}'
    return {series % bound: growing(1 if float(bound) >= seconds else 0) for bound in bounds}


CASES = {
    "TickKeeperOperatorAbsent": Case(
        {f"tickkeeper_worker_redis_up{{{N}}}": steady(1)}, {f"tickkeeper_leader{{{N}}}": steady(0)}, {"namespace": "tk"}
    ),
    "TickKeeperNoLeader": Case(
        {f'tickkeeper_leader{{{N}, pod="a"}}': steady(0), f'tickkeeper_leader{{{N}, pod="b"}}': steady(0)},
        {f'tickkeeper_leader{{{N}, pod="a"}}': steady(0), f'tickkeeper_leader{{{N}, pod="b"}}': steady(1)},
        {"namespace": "tk"},
    ),
    "TickKeeperSchedulesNotReady": Case(
        {f'tickkeeper_schedules{{{N}, reason="NoWorkers"}}': steady(3)},
        {
            f'tickkeeper_schedules{{{N}, reason="Ready"}}': steady(5),
            f'tickkeeper_schedules{{{N}, reason="Suspended"}}': steady(1),
            f'tickkeeper_schedules{{{N}, reason="NoWorkers"}}': steady(0),
            'tickkeeper_schedules{namespace="other", reason="NoWorkers"}': steady(3),
        },
        {"namespace": "tk", "reason": "NoWorkers"},
    ),
    "TickKeeperRedisDown": Case(
        {f'tickkeeper_redis_up{{{N}, pod="a", redis="r"}}': steady(0), f'tickkeeper_leader{{{N}, pod="a"}}': steady(1)},
        {
            # A standby does not look.
            f'tickkeeper_redis_up{{{N}, pod="b", redis="r"}}': steady(0),
            f'tickkeeper_leader{{{N}, pod="b"}}': steady(0),
            f'tickkeeper_redis_up{{{N}, pod="a", redis="r"}}': steady(1),
            f'tickkeeper_leader{{{N}, pod="a"}}': steady(1),
        },
        {"namespace": "tk", "redis": "r"},
    ),
    "TickKeeperSweepStale": Case(
        {
            f'tickkeeper_redis_last_sweep_timestamp_seconds{{{N}, redis="r"}}': steady(END - 300),
            f'tickkeeper_redis_up{{{N}, redis="r"}}': steady(1),
        },
        {
            f'tickkeeper_redis_last_sweep_timestamp_seconds{{{N}, redis="r"}}': steady(END - 5),
            f'tickkeeper_redis_last_sweep_timestamp_seconds{{{N}, redis="gone"}}': steady(END - 300),
            f'tickkeeper_redis_up{{{N}, redis="r"}}': steady(1),
            f'tickkeeper_redis_up{{{N}, redis="gone"}}': steady(0),
        },
        {"namespace": "tk", "redis": "r"},
    ),
    "TickKeeperHealingOften": Case(
        {f'tickkeeper_heals_total{{{N}, cause="Missing"}}': growing(1)},
        # A thousand at once, after a FLUSHALL.
        {f'tickkeeper_heals_total{{{N}, cause="Missing"}}': "0x60 1000x20"},
        {"namespace": "tk", "cause": "Missing"},
    ),
    "TickKeeperReconcileErrors": Case(
        {f"tickkeeper_reconcile_errors_total{{{N}}}": growing(1)},
        {f"tickkeeper_reconcile_errors_total{{{N}}}": "0x60 1x20"},
        {"namespace": "tk"},
    ),
    "TickKeeperWorkerRedisDown": Case(
        {f'tickkeeper_worker_redis_up{{{N}, pod="a", queue="q"}}': steady(0)},
        {f'tickkeeper_worker_redis_up{{{N}, pod="a", queue="q"}}': steady(1)},
        {"namespace": "tk", "queue": "q"},
    ),
    "TickKeeperWorkerDeaf": Case(
        {f'tickkeeper_worker_last_contact_timestamp_seconds{{{N}, pod="a", queue="q"}}': steady(END - 90)},
        {f'tickkeeper_worker_last_contact_timestamp_seconds{{{N}, pod="a", queue="q"}}': steady(END - 15)},
        {"namespace": "tk", "pod": "a", "queue": "q"},
    ),
    "TickKeeperTicksLate": Case(late(60), late(5), {"namespace": "tk", "queue": "q"}),
    "TickKeeperTicksFailing": Case(
        {
            f'tickkeeper_ticks_total{{{N}, queue="q", outcome="failed"}}': growing(1),
            f'tickkeeper_ticks_total{{{N}, queue="q", outcome="empty"}}': growing(9),
        },
        {
            f'tickkeeper_ticks_total{{{N}, queue="q", outcome="failed"}}': growing(1),
            f'tickkeeper_ticks_total{{{N}, queue="q", outcome="empty"}}': growing(99),
        },
        {"namespace": "tk", "queue": "q"},
    ),
    "TickKeeperRowsDead": Case(
        # The counter appears with the first of them.
        {f'tickkeeper_rows_total{{{N}, kind="mail", outcome="dead"}}': "_x70 1x10"},
        {
            f'tickkeeper_rows_total{{{N}, kind="mail", outcome="done"}}': growing(5),
            f'tickkeeper_rows_total{{{N}, kind="mail", outcome="dead"}}': steady(7),
        },
        {"namespace": "tk", "kind": "mail"},
    ),
    "TickKeeperRowsBuried": Case(
        {f'tickkeeper_rows_buried_total{{{N}, pod="a"}}': "0x70 1x10"},
        {f'tickkeeper_rows_buried_total{{{N}, pod="a"}}': steady(7)},
        {"namespace": "tk"},
    ),
    "TickKeeperRowsRetried": Case(
        {
            f'tickkeeper_rows_total{{{N}, kind="mail", outcome="retried"}}': growing(3),
            f'tickkeeper_rows_total{{{N}, kind="mail", outcome="done"}}': growing(1),
        },
        {
            f'tickkeeper_rows_total{{{N}, kind="mail", outcome="retried"}}': growing(1),
            f'tickkeeper_rows_total{{{N}, kind="mail", outcome="done"}}': growing(3),
        },
        {"namespace": "tk", "kind": "mail"},
    ),
    "TickKeeperLocksLost": Case(
        {f'tickkeeper_lock_losses_total{{{N}, queue="q"}}': "0x70 1x10"},
        {f'tickkeeper_lock_losses_total{{{N}, queue="q"}}': steady(1)},
        {"namespace": "tk", "queue": "q"},
    ),
    "TickKeeperHandlersAbandoned": Case(
        {f'tickkeeper_handlers_abandoned{{{N}, pod="a"}}': steady(1)},
        {f'tickkeeper_handlers_abandoned{{{N}, pod="a"}}': steady(0)},
        {"namespace": "tk", "pod": "a"},
    ),
    "TickKeeperOutboxOverdue": Case(
        # Another worker has taken the sampler's turn over: one alert goes on.
        {
            f'tickkeeper_outbox_oldest_due_age_seconds{{{N}, pod="a"}}': "600+15x70",
            f'tickkeeper_outbox_oldest_due_age_seconds{{{N}, pod="b"}}': "_x71 1665+15x9",
        },
        {
            f'tickkeeper_outbox_oldest_due_age_seconds{{{N}, pod="a"}}': steady(OVERDUE),
            'tickkeeper_outbox_oldest_due_age_seconds{namespace="other"}': steady(OVERDUE + 1),
        },
        {"namespace": "tk"},
    ),
    "TickKeeperTenantsWithoutSchedule": Case(
        {f'tickkeeper_outbox_tenants_without_schedule{{{N}, pod="a"}}': steady(2)},
        {
            f'tickkeeper_outbox_tenants_without_schedule{{{N}, pod="a"}}': steady(0),
            f'tickkeeper_outbox_tenants{{{N}, pod="a"}}': steady(9),
        },
        {"namespace": "tk"},
    ),
    "TickKeeperLeasesExpired": Case(
        {f'tickkeeper_outbox_expired_leases{{{N}, pod="a"}}': steady(1)},
        {f'tickkeeper_outbox_expired_leases{{{N}, pod="a"}}': steady(0)},
        {"namespace": "tk"},
    ),
    "TickKeeperHorizonHeld": Case(
        {f'tickkeeper_outbox_xmin_age_seconds{{{N}, pod="a"}}': "3000+15x80"},
        {
            f'tickkeeper_outbox_xmin_age_seconds{{{N}, pod="a"}}': steady(3600),
            f'tickkeeper_outbox_xmin_age_transactions{{{N}, pod="a"}}': steady(1_000_000),
        },
        {"namespace": "tk"},
    ),
    "TickKeeperDeadTuples": Case(
        {f'tickkeeper_outbox_dead_tuples{{{N}, pod="a"}}': steady(1_000_001)},
        {f'tickkeeper_outbox_dead_tuples{{{N}, pod="a"}}': steady(1_000_000)},
        {"namespace": "tk"},
    ),
    "TickKeeperOutboxNotSampled": Case(
        {
            f'tickkeeper_outbox_samples_total{{{N}, pod="a", outcome="failed"}}': growing(1),
            f'tickkeeper_outbox_samples_total{{{N}, pod="a", outcome="taken"}}': steady(7),
            f'tickkeeper_outbox_samples_total{{{N}, pod="b", outcome="elsewhere"}}': steady(7),
        },
        {
            f'tickkeeper_outbox_samples_total{{{N}, pod="a", outcome="failed"}}': growing(1),
            f'tickkeeper_outbox_samples_total{{{N}, pod="b", outcome="taken"}}': growing(1),
        },
        {"namespace": "tk"},
    ),
}
#: Series on which an alert fires as well.
OTHERWISE = {
    # Who may not see since when a snapshot is held sees how many transactions it has outlived.
    "TickKeeperHorizonHeld": {f'tickkeeper_outbox_xmin_age_transactions{{{N}, pod="a"}}': steady(1_000_001)},
    # Its first failure is its first sample.
    "TickKeeperOutboxNotSampled": {f'tickkeeper_outbox_samples_total{{{N}, pod="a", outcome="failed"}}': "_x40 1+1x40"},
}


def _expr(alert: str, overdue: int = OVERDUE) -> str:
    expr: str = ALERTS[alert]["expr"]
    return expr.replace("NAMESPACE", "tk").replace("OVERDUE", str(overdue))


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == ALERTS.keys()


@pytest.mark.parametrize("alert", CASES)
def test_the_alert_fires_on_what_it_is_for(alert: str) -> None:
    ((found, *more),) = ask([Question(_expr(alert), CASES[alert].fires, END)])
    assert not more
    assert found.labels == CASES[alert].labels


@pytest.mark.parametrize("alert", OTHERWISE)
def test_the_alert_fires_in_another_way_too(alert: str) -> None:
    ((found, *more),) = ask([Question(_expr(alert), OTHERWISE[alert], END)])
    assert not more
    assert found.labels == CASES[alert].labels


@pytest.mark.parametrize("alert", CASES)
def test_the_alert_is_silent_where_all_is_well(alert: str) -> None:
    assert ask([Question(_expr(alert), CASES[alert].silent, END)]) == [[]]


def test_annotations_use_labels_that_the_expression_gives() -> None:
    for alert, case in CASES.items():
        text = ALERTS[alert]["summary"] + ALERTS[alert]["description"]
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= case.labels.keys(), alert


def test_the_rule_is_rendered_with_the_releases_namespace() -> None:
    values = helm.case("external")
    rule = helm.one(helm.render(values), "PrometheusRule", "t-tickkeeper")
    rendered = {each["alert"]: each for each in rule["spec"]["groups"][0]["rules"]}
    assert rendered.keys() == ALERTS.keys() - {"TickKeeperLocksLost"}
    for alert, each in rendered.items():
        assert each["expr"] == _expr(alert, values["monitoring"]["prometheusRule"]["overdueSeconds"])
        assert each["annotations"]["runbook_url"] == f"https://runbooks.example.org/{alert}"


def _known() -> set[str]:
    """Names of the metrics, as docs/metrics.md has them: a test of the code holds that file."""
    text = (CHART.parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (tickkeeper_\w+) \| (\w+)", text, re.MULTILINE)
    assert rows
    return {name for name, _ in rows} | {f"{name}_bucket" for name, kind in rows if kind == "histogram"}


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_only_metrics_that_exist_are_used(file: str) -> None:
    text = (CHART / "files" / file).read_text(encoding="utf-8")
    assert set(re.findall(r"\btickkeeper_[a-z_]+", text)) <= _known()


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    config = helm.one(helm.render(helm.case("external")), "ConfigMap", "t-tickkeeper-dashboard")
    dashboard = json.loads(config["data"]["tickkeeper.json"])
    panels = [each for each in dashboard["panels"] if each["type"] != "row"]
    assert len({each["id"] for each in dashboard["panels"]}) == len(dashboard["panels"])
    places = {(each["gridPos"]["x"], each["gridPos"]["y"]) for each in dashboard["panels"]}
    assert len(places) == len(dashboard["panels"])
    queries = [
        target["expr"].replace("$namespace", "tk").replace("$__rate_interval", "1m")
        for panel in panels
        for target in panel["targets"]
    ]
    # Each is one that Prometheus can read.
    ask([Question(query, {"up": steady(1)}, END) for query in queries])
