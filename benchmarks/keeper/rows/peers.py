"""Other schedulers, and this one: FLUSHALL while they run; does any fire again, and when?"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.keeper.peers.catalogue import PEERS
from benchmarks.keeper.peers.watch import Aftermath, Watched
from benchmarks.keeper.result import Figure, Row
from benchmarks.keeper.sizes import Sizes
from benchmarks.lab.partner import Partner
from benchmarks.lab.progress import say
from benchmarks.lab.schedules import schedules
from benchmarks.lab.stage import Stage

ROWS = ("peers",)

_EVERY_MS = 1_000


def play(sizes: Sizes, chosen: frozenset[str]) -> Iterator[Row]:
    """All at once, each with a Redis of its own: they are idle but for one tick a second."""
    assert chosen
    for peer in PEERS:
        peer.interpreter()
    row = Row("peers", raw={peer.name: [] for peer in PEERS})
    found: dict[str, list[Aftermath]] = {peer.name: [] for peer in PEERS}
    ours: list[float] = []
    with Stage(schedules(1, queues=1, every_ms=_EVERY_MS)) as stage, ThreadPoolExecutor(len(PEERS)) as threads:
        worker = stage.start_worker()
        stage.start_operator()
        for run in range(sizes.runs):
            say(f"peers, run {run + 1} of {sizes.runs}: {sizes.peers:g} s")
            watching = {peer.name: threads.submit(Watched(peer).observe, sizes.peers) for peer in PEERS}
            ours.append(_our_first_tick(stage, worker))
            for name, each in watching.items():
                found[name].append(each.result())
    for peer in PEERS:
        seen = found[peer.name]
        row.raw[peer.name] = [each.raw for each in seen]
        row.figures.append(Figure(f"{peer.version}: FLUSHALL -> fires again", "s", [each.again for each in seen]))
        row.figures.append(Figure(f"{peer.version}: new processes -> fires", "s", [each.restarted for each in seen]))
    row.raw["tickkeeper"] = ours
    row.figures.append(Figure("tickkeeper (every 1 s, a stock BullMQ worker): FLUSHALL -> fires again", "s", ours))
    yield row


def _our_first_tick(stage: Stage, worker: Partner) -> float:
    worker.ask({"do": "mark"})
    started = time.time()
    stage.client.flushall()
    seen: dict[str, list[int]] = {}

    def ticked_after() -> bool:
        seen.update(worker.ask({"do": "report"})["first"])
        return bool(seen)

    stage.until(ticked_after, 60, "a tick after FLUSHALL", look=0.02)
    return next(iter(seen.values()))[1] / 1000 - started
