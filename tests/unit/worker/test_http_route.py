"""Delivery by HTTP, against a receiver on loopback."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import socket
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.worker.fakes import row
from tickkeeper.worker.http_route import HttpDelivery, body_of, delay_of, headers_of, judge
from tickkeeper.worker.outcome import MAX_DELAY, Dead, Retry
from tickkeeper.worker.routes import Route, key_of

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


def _verify(secret, headers, body):
    """The receiver's side of the Standard Webhooks specification, from its text. Raises AssertionError."""
    key = base64.b64decode(secret.split("_", 1)[1], validate=True)
    content = headers["webhook-id"] + "." + headers["webhook-timestamp"] + "." + body.decode()
    expected = hmac.digest(key, content.encode(), "sha256")
    versions = [each.split(",", 1) for each in headers["webhook-signature"].split(" ")]
    assert any(version == "v1" and hmac.compare_digest(base64.b64decode(told), expected) for version, told in versions)


@pytest.mark.parametrize("secret", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"])
async def test_a_standard_webhooks_receiver_accepts_the_signature(delivery, secret):
    async with _receiver(_ok) as (url, got):
        route = _route(url, secret_env="KEY")
        await delivery.handler(route, route.secret({"KEY": secret})).call(row(42))
    [(request, body)] = got
    _verify(secret, request.headers, body)
    with pytest.raises(AssertionError):
        _verify(secret, request.headers, body + b" ")
    with pytest.raises(AssertionError):
        _verify("whsec_" + base64.b64encode(secret.encode()).decode(), request.headers, body)


def test_the_documented_check_of_a_receiver_accepts_the_signature():
    text = (Path(__file__).parents[3] / "docs" / "routes.md").read_text()
    [code] = [part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def is_ours" in part]
    names = {}
    exec(code, names)
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    sent = row(42)
    body, now = body_of(sent), int(time.time())
    headers = headers_of(sent, body, key_of(secret.encode()), timestamp=now)
    assert names["is_ours"](secret, headers, body)
    assert not names["is_ours"](secret, headers, body + b" ")
    late = headers_of(sent, body, key_of(secret.encode()), timestamp=now - 3600)
    assert not names["is_ours"](secret, late, body)


async def test_without_a_key_there_is_no_signature(delivery):
    async with _receiver(_ok) as (url, got):
        await delivery.handler(_route(url), None).call(row())
    headers = got[0][0].headers
    assert "webhook-signature" not in headers
    assert headers["webhook-id"] == "1"
    assert headers["webhook-timestamp"].isdigit()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, None), (204, None), (299, None)]
    + [(status, Dead) for status in (400, 401, 403, 404, 409, 410, 422, 451)]
    + [(status, Retry) for status in (301, 307, 408, 429, 500, 502, 503, 504)],
)
def test_what_an_answer_means(status, outcome):
    result = judge(status, None, where="http://h/", now=NOW, backoff=timedelta())
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


@pytest.mark.parametrize(
    ("header", "after"),
    [("0", 60), ("Wed, 31 Dec 2025 23:00:00 GMT", 60), ("1", 60), ("61", 61), (None, None), ("soon", None)],
)
def test_a_receiver_may_put_a_retry_off_and_not_hasten_it(header, after):
    outcome = judge(503, header, where="http://h/", now=NOW, backoff=timedelta(seconds=60))
    assert outcome.after == (None if after is None else timedelta(seconds=after))


async def test_retry_after_zero_leaves_the_back_off(delivery):
    async def busy(_request):
        return web.Response(status=503, headers={"Retry-After": "0"})

    async with _receiver(busy) as (url, _):
        outcome = await delivery.handler(_route(url), None).call(row(attempts=10))
    assert outcome.after >= timedelta(seconds=256)


async def test_a_receiver_that_hangs_does_not_make_another_wait(delivery):
    going, release = asyncio.Event(), asyncio.Event()
    count = 130  # aiohttp's own bound is 100

    async def hang(_request):
        nonlocal count
        count -= 1
        if not count:
            going.set()
        await release.wait()
        return web.Response()

    async with _receiver(hang) as (slow, _), _receiver(_ok) as (quick, _):
        handler = delivery.handler(_route(slow, timeout_ms=60_000), None)
        hanging = [asyncio.create_task(handler.call(row(n))) for n in range(count)]
        async with asyncio.timeout(30):
            await going.wait()
        assert await delivery.handler(_route(quick, timeout_ms=30_000), None).call(row()) is None
        release.set()
        assert set(await asyncio.gather(*hanging)) == {None}


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
    assert outcome.reason.endswith("Error: no answer in time")


async def test_nobody_there_is_tried_again_and_no_credential_is_told(delivery, unused_tcp_port):
    url = f"http://user:hunter2@127.0.0.1:{unused_tcp_port}/hook?token=hunter2"
    outcome = await delivery.handler(_route(url), None).call(row())
    assert isinstance(outcome, Retry)
    assert outcome.reason == f"POST http://127.0.0.1:{unused_tcp_port}/hook: ClientConnectorError: Connection refused"


async def test_a_name_that_nobody_has_is_told(delivery, monkeypatch):
    async def unknown(*_given, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    outcome = await delivery.handler(_route("http://nobody.invalid/hook?token=hunter2"), None).call(row())
    assert isinstance(outcome, Retry)
    assert outcome.reason == "POST http://nobody.invalid/hook: ClientConnectorDNSError: Name or service not known"


async def test_plain_text_where_tls_is_expected_is_told(delivery):
    async with _receiver(_ok) as (url, _):
        outcome = await delivery.handler(_route(url.replace("http:", "https:")), None).call(row())
    assert isinstance(outcome, Retry)
    assert re.search(r": ClientConnector\w+: [A-Z_]+$", outcome.reason)


async def test_the_handlers_own_time_out_is_longer_than_the_requests(delivery):
    handler = delivery.handler(_route("http://h/", timeout_ms=2000), None)
    assert handler.timeout == 7
    assert handler.is_async
    assert handler.name == "route mail.* to http://h/"
