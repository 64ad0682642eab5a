"""A plain HTTP proxy before an API server: answers faults instead of it, or nothing at all, where a test says so."""

import asyncio
import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from embedded.kubernetes import KubeApi

#: Answer nothing, and keep the connection open.
NOTHING = 0

#: Seconds that aiohttp's TLS connections take to close once they have been told to; cut short they are leaks.
_FAREWELL = 0.25

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class ApiProxy:
    """Forwards 127.0.0.1:``port`` to ``server`` as its admin, from a thread of its own."""

    def __init__(self, server: KubeApi, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._faults: dict[str, tuple[re.Pattern[str], int]] = {}
        #: (monotonic seconds, "METHOD path?query", status; NOTHING: none) of each request, oldest first
        self.seen: list[tuple[float, str, int]] = []

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file that goes through here."""
        path = self._folder / "through-proxy.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxied", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "nobody", "user": {"token": "none"}}],
            "contexts": [{"name": "proxied", "context": {"cluster": "proxied", "user": "nobody"}}],
            "current-context": "proxied",
        }
        path.write_text(json.dumps(document))
        return path

    @contextmanager
    def answering(self, status: int, to: str) -> Iterator[None]:
        """Within it, requests whose "METHOD path?query" matches ``to`` get ``status``, or NOTHING."""
        self._faults[to] = (re.compile(to), status)
        try:
            yield
        finally:
            del self._faults[to]

    def requests(self, to: str, *, status: int | None = None) -> list[float]:
        """When requests that match ``to`` came in (and were answered with ``status``)."""
        return [at for at, what, given in tuple(self.seen) if re.search(to, what) and status in (None, given)]

    def __enter__(self) -> Self:
        """Listen, and return once it does."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="api proxy", daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connector = aiohttp.TCPConnector(ssl=self._context(), limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._client:
            app = web.Application(client_max_size=64 * 1024 * 1024)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            ready.set()
            await self._stop.wait()
            await runner.cleanup()
        await asyncio.sleep(_FAREWELL)

    def _context(self) -> ssl.SSLContext:
        found = json.loads(self._server.kubeconfig.read_text())
        user, cluster = found["users"][0]["user"], found["clusters"][0]["cluster"]
        for name, text in (("crt", user["client-certificate-data"]), ("key", user["client-key-data"])):
            (self._folder / f"admin.{name}").write_bytes(base64.b64decode(text))
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        context.load_cert_chain(self._folder / "admin.crt", self._folder / "admin.key")
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        what = f"{request.method} {request.path_qs}"
        body = await request.read()
        for pattern, status in tuple(self._faults.values()):
            if pattern.search(what):
                self.seen.append((time.monotonic(), what, status))
                if status == NOTHING:
                    await self._stop.wait()
                text = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": "Fault"}
                return web.json_response(text, status=status)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in {*_HOP_BY_HOP, "authorization"}}
        at = time.monotonic()
        async with self._client.request(
            request.method,
            f"{self._server.url}{request.path_qs}",
            data=body or None,
            skip_auto_headers=("Content-Type",),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            self.seen.append((at, what, answer.status))
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    response.headers.add(name, value)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
