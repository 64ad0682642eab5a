"""Probes and metrics over HTTP."""

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from tickkeeper.telemetry.http import Health, TelemetryServer
from tickkeeper.telemetry.metrics import WorkerMetrics, new_registry


async def _get(server, path):
    host, port = server.address
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest.fixture
async def serve():
    servers = []

    async def start(**probes):
        registry = CollectorRegistry()
        Counter("tickkeeper_things", "Things.", registry=registry).inc()
        healthy = {"live": lambda: Health(ok=True), "ready": lambda: Health(ok=True)}
        server = TelemetryServer("127.0.0.1", 0, registry=registry, **{**healthy, **probes})
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop()
        await server.stop()


async def test_healthy(serve):
    server = await serve()
    assert await _get(server, "/livez") == (200, "application/json; charset=utf-8", '{"ok": true}\n')
    assert (await _get(server, "/readyz"))[0] == 200
    assert (await _get(server, "/nothing"))[0] == 404


async def test_not_ready_says_why(serve):
    server = await serve(ready=lambda: Health(ok=False, detail={"outbox": "missing"}))
    status, _, text = await _get(server, "/readyz")
    assert status == 503
    assert text == '{"ok": false, "outbox": "missing"}\n'
    assert (await _get(server, "/livez"))[0] == 200


async def test_a_probe_that_raises_is_a_failed_probe_without_credentials(serve):
    def broken():
        raise RuntimeError("redis://:hunter2@h")

    status, _, text = await _get(await serve(live=broken), "/livez")
    assert status == 503
    assert "hunter2" not in text


async def test_metrics_are_in_prometheus_form(serve):
    status, kind, text = await _get(await serve(), "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert "tickkeeper_things_total 1.0" in text


async def test_an_address_that_is_taken_raises(serve):
    _, port = (await serve()).address
    second = TelemetryServer(
        "127.0.0.1", port, live=lambda: Health(ok=True), ready=lambda: Health(ok=True), registry=CollectorRegistry()
    )
    with pytest.raises(OSError, match="address already in use"):
        await second.start()
    await second.stop()


def test_the_workers_metrics_are_all_named_for_the_project():
    metrics = WorkerMetrics(CollectorRegistry())
    names = {family.name for family in metrics.registry.collect()}
    assert all(name.startswith("tickkeeper_") for name in names)
    assert {
        "tickkeeper_ticks",
        "tickkeeper_tick_duration_seconds",
        "tickkeeper_rows",
        "tickkeeper_lock_losses",
    } <= names


def test_a_registry_of_its_own_has_the_process_figures():
    assert any(family.name == "process_resident_memory_bytes" for family in new_registry().collect())
