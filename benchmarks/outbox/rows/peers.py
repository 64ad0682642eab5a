"""The same drain by other queues in PostgreSQL, each in turn with ours on one server."""

from typing import Any

from benchmarks.keeper.result import Figure, Row
from benchmarks.lab.figures import median
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.outbox import table
from benchmarks.outbox.peers.catalogue import DRAINING, Peer
from benchmarks.outbox.rows.drain import warm
from benchmarks.outbox.sizes import Sizes
from benchmarks.outbox.stage import Stage
from embedded.errors import PartFailed


def play(sizes: Sizes) -> Row:
    """Ours, then each of them, so many times."""
    for peer in DRAINING:
        peer.prepare()
    row = Row("drain-peers", raw={"runs": []})
    ours: list[float] = []
    theirs: dict[str, list[float]] = {peer.name: [] for peer in DRAINING}
    with Stage() as stage:
        stage.worker("noop", BATCH_SIZE=str(sizes.batch))
        warm(stage, sizes)
        dsns = {peer.name: stage.postgres.create_database(f"peer_{peer.name.replace('-', '_')}") for peer in DRAINING}
        for peer in DRAINING:
            peer.run(dsns[peer.name], "setup")
        for run in range(sizes.runs):
            say(f"drain-peers, run {run + 1} of {sizes.runs}: ours")
            raw: dict[str, Any] = {"load": load()}
            table.fill(stage.connection, sizes.peer_rows)
            drained = stage.drain(sizes.peer_rows)
            ours.append(drained.rate)
            raw["tickkeeper"] = drained.raw
            for peer in DRAINING:
                say(f"drain-peers, run {run + 1} of {sizes.runs}: {peer.name}")
                table.settle(stage.connection)
                rate, raw[peer.name] = drain(peer, dsns[peer.name], sizes.peer_rows)
                theirs[peer.name].append(rate)
            row.raw["runs"].append(raw)
    best = max(DRAINING, key=lambda peer: median(theirs[peer.name]))
    row.figures.append(Figure(f"tickkeeper, {sizes.peer_rows} rows, 2 lanes, batch {sizes.batch}", "rows/s", ours))
    row.figures += [Figure(peer.label, "rows/s", theirs[peer.name]) for peer in DRAINING]
    ratio = median(ours) / median(theirs[best.name])
    row.at_least("drain-peers", ratio, "x", 2, f"x the best of them ({best.name})")
    return row


def drain(peer: Peer, dsn: str, rows: int, what: str = "drain") -> tuple[float, Any]:
    """Its rows a second, from its worker's start to the last call. Raises PartFailed unless each had one call."""
    answer = peer.run(dsn, what, str(rows))
    if answer["called"] != rows or answer["left"]:
        raise PartFailed(f"{peer.name}: {answer['called']} calls for {rows} rows, {answer['left']} left")
    return rows / max(answer["seconds"], 0.001), answer
