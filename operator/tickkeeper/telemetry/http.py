"""Probes and metrics over HTTP: ``/livez``, ``/readyz``, ``/metrics``."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tickkeeper.telemetry.redaction import redactor


@dataclass(frozen=True, slots=True)
class Health:
    """An answer to a probe; ``detail`` says why, without credentials."""

    ok: bool
    detail: dict[str, str] = field(default_factory=dict)


Probe = Callable[[], Health]


class TelemetryServer:
    """Serves one process's probes and metrics. ``port`` 0 takes a free one; ``address`` says which."""

    def __init__(self, host: str, port: int, *, live: Probe, ready: Probe, registry: CollectorRegistry) -> None:
        self._host = host
        self._port = port
        self._live = live
        self._ready = ready
        self._registry = registry
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be taken."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        # A probe that is still being answered must not hold up the end of the process.
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, once started."""
        assert self._runner is not None, "not started"
        host, port = self._runner.addresses[0][:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Close the listener; safe to call twice."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        return _answer(self._live)

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _answer(self._ready)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(probe: Probe) -> web.Response:
    try:
        health = probe()
    except Exception as error:  # noqa: BLE001 - a probe that cannot tell is a failed probe
        health = Health(ok=False, detail={"probe": redactor.value(error)})
    body = {"ok": health.ok, **health.detail}
    return web.Response(text=json.dumps(body) + "\n", status=200 if health.ok else 503, content_type="application/json")
