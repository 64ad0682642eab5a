"""The worker as a process: configuration, probes, the end in bounded time."""

import json
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.integration.worker.process import (
    COMMAND,
    Worker,
    effects,
    enqueue,
    rows,
    worker_process,
)
from tickkeeper.outbox import migrate_sync

NOWHERE = "postgresql://app:hunter2@127.0.0.1:1/app"


@pytest.fixture
def outbox(database):
    """A migrated database's dsn."""
    migrate_sync(database)
    return database


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "one"


def _job(redis, data=None, every=None):
    """One tick, put in by hand as BullMQ does: the fixtures' client is synchronous."""
    import asyncio

    from tests.integration.worker.conftest import queue_of, schedule

    port = redis.connection_pool.connection_kwargs["port"]

    async def put():
        async with queue_of(f"redis://127.0.0.1:{port}/0") as queue:
            if every is None:
                await queue.add("tick", data or {"tenantId": "acme"})
            else:
                await schedule(queue, every, data=data)

    asyncio.run(put())


def _probe(worker, path):
    address = worker.events("worker started")[0]["probes"]
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_ticks_rows_probes_metrics_memory_and_a_clean_end(folder, redis, redis_url, outbox):
    with worker_process(folder, redis=redis_url, database=outbox) as worker:
        worker.wait_for(lambda: worker.events("worker started") and _probe(worker, "/readyz")[0] == 200)
        enqueue(outbox, "effect", {"n": 1}, {"n": 2})
        enqueue(outbox, "unknown", {"n": 3})
        _job(redis, every=300)
        worker.wait_for(lambda: len(effects(folder)) == 2)
        worker.wait_for(lambda: any(line["result"]["unsupported"] == 1 for line in worker.events("tick")))
        assert sorted(effects(folder)) == ["done 1", "done 2"]
        assert _probe(worker, "/livez")[0] == 200
        status, text = _probe(worker, "/metrics")
        assert status == 200
        assert 'tickkeeper_rows_total{kind="effect",outcome="done"} 2.0' in text
        assert 'tickkeeper_ticks_total{outcome="empty",queue="ticks"}' in text
        assert worker.rss_mb < 100
        worker.terminate()
        assert worker.exit(10) == 0
    assert worker.events("stopped")
    assert "hunter2" not in worker.text


def test_unusable_configuration_is_one_line_a_fault_and_exit_2(tmp_path):
    worker = Worker(
        tmp_path,
        {
            "TICKKEEPER_REDIS_URL": "http://:hunter2@127.0.0.1:1/0",
            "TICKKEEPER_DATABASE_URL": NOWHERE,
            "TICKKEEPER_CONCURRENCY": "none",
        },
    )
    assert worker.exit(30) == 2
    redis, concurrency = worker.text.splitlines()
    assert redis.startswith("tickkeeper: TICKKEEPER_REDIS_URL: ")
    assert concurrency.startswith("tickkeeper: TICKKEEPER_CONCURRENCY=none: ")
    assert "hunter2" not in worker.text


def test_an_address_that_is_taken_is_told(tmp_path, redis_url):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with worker_process(tmp_path / "one", redis=redis_url, database=NOWHERE, HTTP_PORT=port) as worker:
            assert worker.exit(30) == 2
    assert (
        f"TICKKEEPER_HTTP_HOST=127.0.0.1 TICKKEEPER_HTTP_PORT={port}: cannot listen there: "
        in worker.text.splitlines()[-1]
    )


def test_options_are_documented():
    said = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    for option in ("--queue", "--handlers", "--routes", "--grace-seconds"):
        assert option in said


def test_a_route_delivers_rows_without_code(folder, tmp_path, redis, redis_url, outbox):
    got = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.append((self.path, self.headers["Idempotency-Key"], body))
            self.send_response(410 if body["payload"]["n"] == 2 else 204)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        routes = tmp_path / "routes.yaml"
        routes.write_text(f"routes:\n  - {{kinds: mail.*, url: 'http://127.0.0.1:{server.server_port}/hook'}}\n")
        enqueue(outbox, "mail.send", {"n": 1}, {"n": 2})
        enqueue(outbox, "sms.send", {"n": 3})
        with worker_process(folder, redis=redis_url, database=outbox, ROUTES=str(routes), HANDLERS="") as worker:
            _job(redis, every=300)
            worker.wait_for(lambda: len(got) == 2)
            worker.wait_for(lambda: rows(outbox, "kind") == [("sms.send",)])
        server.shutdown()
    assert sorted((path, body["tenantId"], body["kind"], body["payload"]["n"]) for path, _, body in got) == [
        ("/hook", "acme", "mail.send", 1),
        ("/hook", "acme", "mail.send", 2),
    ]
    assert {key for _, key, _ in got} == {body["id"] for _, _, body in got}
    [(reason, error)] = rows(outbox, "reason, last_error", "outbox_dead")
    assert reason == "rejected"
    assert error.endswith("/hook: answered 410")


def test_a_missing_schema_is_one_line_with_the_command_and_mended_while_running(folder, redis, redis_url, database):
    with worker_process(folder, redis=redis_url, database=database) as worker:
        worker.wait_for("outbox not usable; ticks fail until it is")
        _job(redis, every=300)
        worker.wait_for("tick failed")
        [told] = worker.events("outbox not usable; ticks fail until it is")
        assert "run `tickkeeper outbox migrate`" in told["error"]
        assert _probe(worker, "/readyz")[0] == 503
        assert "tickkeeper outbox migrate" in json.loads(_probe(worker, "/readyz")[1])["outbox"]
        assert _probe(worker, "/livez")[0] == 200
        migrate_sync(database)
        enqueue(database, "effect", {"n": 1})
        worker.wait_for(lambda: effects(folder) == ["done 1"])
        worker.wait_for("outbox ready")


def test_d1_sigterm_in_mid_tick_is_one_effect_and_exit_0(folder, redis, redis_url, outbox):
    enqueue(outbox, "slow", {"n": 1, "seconds": 1.5})
    with worker_process(folder, redis=redis_url, database=outbox, GRACE_SECONDS="10") as worker:
        _job(redis)
        worker.wait_for(lambda: effects(folder) == ["start 1"])
        worker.terminate()
        assert worker.exit(10) == 0
    assert effects(folder) == ["start 1", "done 1"]
    assert rows(outbox) == []
    assert redis.zcard("bull:ticks:completed") == 1
    assert redis.llen("bull:ticks:active") == 0


def test_d3_sigterm_with_claimed_rows_hands_them_back_at_once(folder, redis, redis_url, outbox):
    enqueue(outbox, "slow", *({"n": n, "seconds": 60} for n in range(50)))
    settings = {"GRACE_SECONDS": "3", "HANDLER_CONCURRENCY": "5"}
    with worker_process(folder, redis=redis_url, database=outbox, **settings) as worker:
        _job(redis)
        worker.wait_for(lambda: len(effects(folder)) == 5)
        began = time.monotonic()
        worker.terminate()
        assert worker.exit(10) == 0
        assert time.monotonic() - began < 4
    assert [(attempts, leased) for _, attempts, leased in rows(outbox)] == [(0, False)] * 50
    # The tick itself is finished too: nothing is stranded in BullMQ's active list.
    assert redis.llen("bull:ticks:active") == 0
    assert redis.keys("bull:ticks:tickkeeper:*") == []


@pytest.mark.parametrize("kind", ["thread", "block"])
def test_d1_a_handler_that_cannot_be_stopped_does_not_outlast_the_grace(folder, redis, redis_url, outbox, kind):
    """Neither a thread nor a blocked event loop can be stopped: the process goes all the same."""
    enqueue(outbox, kind, {"n": 1, "seconds": 120})
    with worker_process(folder, redis=redis_url, database=outbox, GRACE_SECONDS="2") as worker:
        _job(redis)
        worker.wait_for(lambda: effects(folder) == ["start 1"])
        began = time.monotonic()
        worker.terminate()
        code = worker.exit(10)
        assert time.monotonic() - began < 3
    # A blocked loop could not hand its row back: it comes back when the lease runs out.
    assert code == (0 if kind == "thread" else 1)
    assert rows(outbox, "lease_id IS NOT NULL") == [(kind == "block",)]


def test_b13_sigterm_while_redis_is_down(folder, own_redis, outbox):
    with worker_process(folder, redis=own_redis.url, database=outbox, GRACE_SECONDS="5") as worker:
        worker.wait_for(lambda: worker.events("worker started") and _probe(worker, "/readyz")[0] == 200)
        own_redis.kill()
        worker.wait_for("redis does not answer; trying on")
        worker.terminate()
        assert worker.exit(6) == 0


def test_b13_sigterm_while_redis_is_frozen_in_mid_tick(folder, own_redis, outbox):
    enqueue(outbox, "slow", {"n": 1, "seconds": 60})
    with (
        worker_process(folder, redis=own_redis.url, database=outbox, GRACE_SECONDS="4") as worker,
        own_redis.client() as client,
    ):
        _job(client)
        worker.wait_for(lambda: effects(folder) == ["start 1"])
        own_redis.freeze()
        try:
            worker.terminate()
            assert worker.exit(6) == 0
        finally:
            own_redis.thaw()
    assert [leased for _, _, leased in rows(outbox)] == [False]


def test_sigterm_while_postgres_is_frozen_in_mid_tick(folder, redis, redis_url, own_postgres):
    dsn = own_postgres.create_database()
    migrate_sync(dsn)
    enqueue(dsn, "slow", {"n": 1, "seconds": 60})
    with worker_process(folder, redis=redis_url, database=dsn, GRACE_SECONDS="4") as worker:
        _job(redis)
        worker.wait_for(lambda: effects(folder) == ["start 1"])
        own_postgres.freeze()
        try:
            worker.terminate()
            assert worker.exit(6) == 0
        finally:
            own_postgres.thaw()


def test_a_second_signal_ends_it_at_once(folder, redis, redis_url, outbox):
    enqueue(outbox, "slow", {"n": 1, "seconds": 60})
    with worker_process(folder, redis=redis_url, database=outbox, GRACE_SECONDS="60") as worker:
        _job(redis)
        worker.wait_for(lambda: effects(folder) == ["start 1"])
        worker.terminate(signal.SIGINT)
        worker.wait_for("stopping")
        worker.terminate(signal.SIGINT)
        assert worker.exit(5) == 130


def test_p1_however_a_worker_ends_its_schedules_stay(tmp_path, redis, redis_url, outbox):
    _job(redis, every=500)
    for number, how in enumerate((signal.SIGTERM, signal.SIGINT, signal.SIGKILL)):
        with worker_process(tmp_path / str(number), redis=redis_url, database=outbox) as worker:
            worker.wait_for("tick")
            worker.terminate(how)
            worker.exit(10)
        assert redis.zscore("bull:ticks:repeat", "tick.acme") is not None


def test_d4_ticks_go_on_after_sigkill_of_the_only_worker(tmp_path, redis, redis_url, outbox):
    times = {"LOCK_DURATION_MS": "1000", "STALLED_INTERVAL_MS": "1000"}
    enqueue(outbox, "slow", {"n": 1, "seconds": 60})
    _job(redis, every=500)
    with worker_process(tmp_path / "one", redis=redis_url, database=outbox, **times) as worker:
        worker.wait_for(lambda: effects(tmp_path / "one") == ["start 1"])
        worker.terminate(signal.SIGKILL)
        worker.exit(5)
    assert redis.llen("bull:ticks:active") == 1
    enqueue(outbox, "effect", {"n": 2})
    with worker_process(tmp_path / "two", redis=redis_url, database=outbox, **times) as worker:
        worker.wait_for(lambda: "done 2" in effects(tmp_path / "two"), 10)
        worker.wait_for("job of a lost worker put back", 10)
        worker.wait_for(lambda: redis.llen("bull:ticks:active") == 0, 10)


def test_a11_a_blocked_loop_loses_its_lock_and_there_is_one_effect(tmp_path, redis, redis_url, outbox):
    """The tick runs again elsewhere, as BullMQ must let it; the row's own lease keeps its effect single."""
    times = {"LOCK_DURATION_MS": "1000", "STALLED_INTERVAL_MS": "1000"}
    enqueue(outbox, "block", {"n": 1, "seconds": 2.5})
    with (
        worker_process(tmp_path / "one", redis=redis_url, database=outbox, **times) as one,
        worker_process(tmp_path / "two", redis=redis_url, database=outbox, **times) as two,
    ):
        for worker in (one, two):
            worker.wait_for(lambda each=worker: each.events("outbox ready"))
        _job(redis, every=60_000)
        one.wait_for(lambda: effects(tmp_path / "one") == ["start 1", "done 1"])
        one.wait_for(lambda: redis.zcard("bull:ticks:completed") >= 1)
        one.wait_for(lambda: any(each.events("job of a lost worker put back") for each in (one, two)))
        one.wait_for(
            lambda: any(
                each.events("lock of a running job lost; its rows keep their own leases") for each in (one, two)
            )
        )
        for worker in (one, two):
            worker.terminate()
            assert worker.exit(10) == 0
    assert effects(tmp_path / "one") == ["start 1", "done 1"]
    assert rows(outbox) == rows(outbox, table="outbox_dead", columns="id") == []


def test_d17_a_row_that_kills_its_worker_is_set_aside_alone(tmp_path, redis, redis_url, outbox):
    """C10 with whole processes: nobody but the killer runs out of attempts."""
    enqueue(outbox, "effect", *({"n": n} for n in range(100)), max_attempts=3)
    enqueue(outbox, "kill", {"n": 1000}, max_attempts=3)
    enqueue(outbox, "effect", *({"n": n} for n in range(100, 200)), max_attempts=3)
    _job(redis, every=200, data={"tenantId": "acme"})
    settings = {
        "LEASE_SECONDS": "1",
        "LOCK_DURATION_MS": "1000",
        "STALLED_INTERVAL_MS": "1000",
        "CONCURRENCY_POLICY": "Allow",
    }
    for number in range(10):
        with worker_process(tmp_path / str(number), redis=redis_url, database=outbox, **settings) as worker:
            worker.wait_for(lambda each=worker: each.popen.poll() is not None or not rows(outbox), 30)
        if not rows(outbox):
            break
    did = effects(tmp_path / "0")
    assert {line for line in did if line.startswith("done")} == {f"done {n}" for n in range(200)}
    assert did.count("kill 1000") == 3
    assert rows(outbox, "kind, attempts", "outbox_dead") == [("kill", 3)]


def test_c14_postgres_restarts_and_the_worker_goes_on(folder, redis, redis_url, own_postgres):
    dsn = own_postgres.create_database()
    migrate_sync(dsn)
    with worker_process(folder, redis=redis_url, database=dsn) as worker:
        _job(redis, every=300)
        worker.wait_for("tick")
        own_postgres.kill()
        worker.wait_for("tick failed", 40)
        own_postgres.start()
        enqueue(dsn, "effect", {"n": 1})
        worker.wait_for(lambda: effects(folder) == ["done 1"], 30)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("stop the loop", "the event loop was stopped"), ("cancel all", "all tasks were cancelled")],
)
def test_a_handler_that_takes_the_event_loop_away_ends_the_worker_with_a_line(
    folder, redis, redis_url, outbox, kind, cause
):
    enqueue(outbox, kind, {"n": 1})
    _job(redis)
    with worker_process(folder, redis=redis_url, database=outbox) as worker:
        assert worker.exit(20) == 1
        assert [line["cause"] for line in worker.lines if line["event"].startswith("ended by code")] == [cause]
        assert "Traceback" not in worker.text
