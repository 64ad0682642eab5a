"""Delivery by HTTP, against a receiver on loopback."""

import asyncio
import base64
import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from tests.unit.worker.fakes import row
from tickkeeper.worker.http_route import HttpDelivery, delay_of, judge
from tickkeeper.worker.outcome import MAX_DELAY, Dead, Retry
from tickkeeper.worker.routes import Route

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def _receiver(answer):
    """A server that keeps what it got; ``answer`` makes the response."""
    got = []

    async def take(request):
        got.append((request, await request.read()))
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", got
    finally:
        await runner.cleanup()


async def _ok(_request):
    return web.Response(status=204)


@pytest.fixture
async def delivery():
    delivery = HttpDelivery()
    yield delivery
    await delivery.close()


def _route(url, **fields):
    return Route(kinds="mail.*", url=url, **fields)


async def test_a_row_is_one_signed_post(delivery):
    sent = row(42, kind="mail.send", attempts=3, headers={"traceparent": "00-abc", "x-other": "é\r\n"})
    async with _receiver(_ok) as (url, got):
        handler = delivery.handler(_route(f"{url}/hook", headers={"X-Team": "growth"}), b"key")
        assert await handler.call(sent) is None
    [(request, body)] = got
    assert request.method == "POST"
    assert json.loads(body) == {
        "id": "42",
        "tenantId": "acme",
        "kind": "mail.send",
        "attempt": 3,
        "createdAt": "2026-01-01T00:00:00+00:00",
        "payload": {"n": 42},
        "headers": {"traceparent": "00-abc", "x-other": "é\r\n"},
    }
    headers = request.headers
    assert headers["Idempotency-Key"] == headers["webhook-id"] == "42"
    assert headers["X-Team"] == "growth"
    assert headers["traceparent"] == "00-abc"
    assert "x-other" not in headers
    signed = f"42.{headers['webhook-timestamp']}.".encode() + body
    mac = base64.b64encode(hmac.new(b"key", signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{mac}"


async def test_without_a_key_there_is_no_signature(delivery):
    async with _receiver(_ok) as (url, got):
        await delivery.handler(_route(url), None).call(row())
    assert "webhook-signature" not in got[0][0].headers


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, None), (204, None), (299, None)]
    + [(status, Dead) for status in (400, 401, 403, 404, 409, 410, 422, 451)]
    + [(status, Retry) for status in (301, 307, 408, 429, 500, 502, 503, 504)],
)
def test_what_an_answer_means(status, outcome):
    result = judge(status, None, where="http://h/", now=NOW)
    assert (type(result) if result else None) is outcome
    if result:
        assert result.reason == f"POST http://h/: answered {status}"


@pytest.mark.parametrize(
    ("header", "delay"),
    [
        ("120", timedelta(seconds=120)),
        (" 0 ", timedelta(0)),
        ("Thu, 01 Jan 2026 00:01:00 GMT", timedelta(seconds=60)),
        ("Wed, 31 Dec 2025 23:00:00 GMT", timedelta(0)),
        ("99999999999999", MAX_DELAY),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_DELAY),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 400, None),
        (None, None),
    ],
)
def test_retry_after_is_honoured_within_bounds(header, delay):
    assert delay_of(header, NOW) == delay


async def test_retry_after_reaches_the_row(delivery):
    async def busy(_request):
        return web.Response(status=503, headers={"Retry-After": "7"})

    async with _receiver(busy) as (url, _):
        outcome = await delivery.handler(_route(url), None).call(row())
    assert isinstance(outcome, Retry)
    assert outcome.after == timedelta(seconds=7)


async def test_a_redirect_is_not_followed(delivery):
    async def elsewhere(_request):
        return web.Response(status=307, headers={"Location": "/other"})

    async with _receiver(elsewhere) as (url, got):
        assert isinstance(await delivery.handler(_route(url), None).call(row()), Retry)
    assert len(got) == 1


async def test_a_slow_receiver_is_tried_again(delivery):
    async def slow(_request):
        await asyncio.sleep(30)
        return web.Response()

    async with _receiver(slow) as (url, _):
        outcome = await delivery.handler(_route(url, timeout_ms=100), None).call(row())
    assert isinstance(outcome, Retry)
    assert "Timeout" in outcome.reason


async def test_nobody_there_is_tried_again_and_no_credential_is_told(delivery, unused_tcp_port):
    url = f"http://user:hunter2@127.0.0.1:{unused_tcp_port}/hook?token=hunter2"
    outcome = await delivery.handler(_route(url), None).call(row())
    assert isinstance(outcome, Retry)
    assert outcome.reason == f"POST http://127.0.0.1:{unused_tcp_port}/hook: ClientConnectorError"


async def test_the_handlers_own_time_out_is_longer_than_the_requests(delivery):
    handler = delivery.handler(_route("http://h/", timeout_ms=2000), None)
    assert handler.timeout == 7
    assert handler.is_async
    assert handler.name == "route mail.* to http://h/"
