"""From a commit to the call of its handler, while rows come in at a steady rate; the same inflow into two peers."""

import json
import time
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median, percentile
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox import records, table
from benchmarks.outbox.peers.catalogue import GRAPHILE_BATCHED, PGQUEUER, Peer
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage
from embedded.errors import PartFailed
from embedded.process import wait_for

_PEERS = (PGQUEUER, GRAPHILE_BATCHED)
_COMMITS_A_SECOND = 100
_SPARE = 5.0
_TENANT = "acme"

# The time is taken before the commit, as the peers' producers take it: what is measured holds the commit itself.
# n in the payload: a function whose arguments do not change is called once for all rows.
_ENQUEUE = """
SELECT count(*) FROM generate_series(1, %(rows)s::int) n CROSS JOIN LATERAL tickkeeper.enqueue(
    tenant_id => %(tenant)s, kind => %(kind)s,
    payload => jsonb_build_object('n', n, 'at', %(at)s::float8, 'pad', repeat('x', 60))) e
"""


def play(sizes: Sizes) -> Row:
    """Ours, then each peer, so many times."""
    for peer in _PEERS:
        peer.prepare()
    row = Row("latency", raw={"runs": []})
    found: dict[str, list[list[float]]] = {name: [] for name in ("tickkeeper", *(peer.name for peer in _PEERS))}
    with Stage() as stage:
        for peer in _PEERS:
            peer.run(stage.postgres.create_database(f"peer_{peer.name.replace('-', '_')}"), "setup")
        stage.worker("stamped", BATCH_SIZE=str(sizes.batch), CONCURRENCY="10")
        for run in range(sizes.runs):
            say(f"latency, run {run + 1} of {sizes.runs}")
            raw: dict[str, Any] = {"load": load()}
            found["tickkeeper"].append(_ours(stage, sizes))
            for peer in _PEERS:
                found[peer.name].append(_theirs(stage, peer, sizes))
            row.raw["runs"].append(raw | {name: ages[-1] for name, ages in found.items()})
    labels = {"tickkeeper": f"tickkeeper, every {sizes.every_ms} ms"} | {peer.name: peer.label for peer in _PEERS}
    for name, ages in found.items():
        what = f"{labels[name]}: commit -> handler at {sizes.inflow_a_second} rows/s"
        row.figures += [
            Figure(f"{what}, p{rank}", "ms", [percentile(each, rank) for each in ages]) for rank in (50, 99)
        ]
    ours, every = found["tickkeeper"], sizes.every_ms
    p50, p99 = (median([percentile(each, rank) for each in ours]) for rank in (50, 99))
    row.at_most("latency-p50", p50 / every, "x", 0.6, "x the interval")
    row.at_most("latency-p99", p99 / every, "x", 1.5, "x the interval")
    return row


def _ours(stage: Stage, sizes: Sizes) -> list[float]:
    before = _ages(stage)
    table.empty(stage.connection)
    stage.ticks.schedule(_TENANT, every_ms=sizes.every_ms)
    try:
        wanted = _produce(stage, sizes)
        wait_for(lambda: len(_ages(stage)) >= len(before) + wanted, seconds=60, what=f"{wanted} rows delivered")
    finally:
        stage.ticks.unschedule(_TENANT)
    return _ages(stage)[len(before) :]


def _ages(stage: Stage) -> list[float]:
    return [age for each in records.read(stage.records, "ages", "d") for age in each]


def _produce(stage: Stage, sizes: Sizes) -> int:
    """The same rhythm as the peers' producers have; how many rows."""
    rows = round(sizes.inflow_a_second * sizes.inflow)
    at_once = max(1, round(sizes.inflow_a_second / _COMMITS_A_SECOND))
    started = time.perf_counter()
    for number in range(rows // at_once):
        values = {"rows": at_once, "tenant": _TENANT, "kind": table.KIND, "at": time.time()}
        stage.connection.execute(_ENQUEUE, values)
        ahead = started + (number + 1) * at_once / sizes.inflow_a_second - time.perf_counter()
        time.sleep(max(0.0, ahead))
    return rows // at_once * at_once


def _theirs(stage: Stage, peer: Peer, sizes: Sizes) -> list[float]:
    dsn = stage.postgres.dsn(f"peer_{peer.name.replace('-', '_')}")
    log = stage.folder / f"{peer.name}.log"
    serving = peer.start(dsn, "serve", f"{sizes.inflow + _SPARE:.1f}", log=log)
    try:
        rows = round(sizes.inflow_a_second * sizes.inflow)
        produced = peer.run(dsn, "produce", str(rows), f"{sizes.inflow:.1f}")
        said, _ = serving.communicate(timeout=sizes.inflow + _SPARE + 60)
    except TimeoutExpired:
        raise PartFailed(f"{peer.name} serve: has not ended: {log.read_text()[-500:]}") from None
    finally:
        with suppress(ProcessLookupError):
            serving.kill()
        serving.wait()
    if serving.returncode != 0 or not said.strip():
        raise PartFailed(f"{peer.name} serve (exit {serving.returncode}): {log.read_text()[-1500:]}")
    ages: list[float] = json.loads(said.strip().splitlines()[-1])["ages"]
    if len(ages) != produced["rows"]:
        raise PartFailed(f"{peer.name}: {len(ages)} calls for {produced['rows']} rows")
    return ages
