"""A thousand schedules in one queue: a wiped Redis, and one that is killed and started again."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from benchmarks.keeper.floor import Floor
from benchmarks.keeper.result import Figure, Row, ratios
from benchmarks.keeper.sizes import Sizes
from benchmarks.keeper.wipe import wipe
from benchmarks.lab.bare import FLOOR_PREFIX
from benchmarks.lab.figures import median, number
from benchmarks.lab.partner import Partner
from benchmarks.lab.progress import say
from benchmarks.lab.schedules import schedules
from benchmarks.lab.stage import Stage
from embedded.errors import PartFailed

ROWS = ("flushall-1000", "redis-restart")

#: What a reconnect may take at the longest.
_RECONNECT_SECONDS = 0.2
_DOWN_SECONDS = 1.0
_PING_GAP = 0.001
_PATIENCE = 30.0


def play(sizes: Sizes, chosen: frozenset[str]) -> Iterator[Row]:
    """With a worker that ticks them, and one at the floor's queue too: what is measured against it has it as well."""
    wanted = schedules(sizes.thousand, queues=1, every_ms=sizes.thousand_every_ms)
    with Stage(wanted) as stage:
        worker = stage.start_worker()
        stage.start_worker(FLOOR_PREFIX)
        stage.start_operator()
        floor = Floor(stage.start_bare(), stage.queues, sizes.thousand_every_ms)
        floor.calibrate(sizes.thousand)
        if "flushall-1000" in chosen:
            yield _flushall(stage, sizes, floor, worker)
        if "redis-restart" in chosen:
            stage.settle()
            yield _restart(stage, sizes, floor)


def _flushall(stage: Stage, sizes: Sizes, floor: Floor, worker: Partner) -> Row:
    row = Row("flushall-1000", raw={"floor_s_by_concurrency": floor.tried, "first_ticks_ms": []})
    wipes, lateness = [], []
    every = sizes.thousand_every_ms
    for run in range(sizes.runs):
        say(f"flushall-1000, run {run + 1} of {sizes.runs}")
        stage.settle()
        worker.ask({"do": "mark"})
        found = wipe(stage, floor)
        wipes.append(found)
        first = _first_ticks(stage, worker, seconds=found.healed + every / 1000 + 30)
        since = found.at * 1000
        # A slot that fell into the wipe is lost: the bound is one interval after the registration.
        lateness.append(max(slot - since for slot, _ in first.values()) / 1000 - found.healed)
        row.raw["first_ticks_ms"].append([[slot - since, at - since] for slot, at in first.values()])
    healed, bare = [each.healed for each in wipes], [each.floor for each in wipes]
    count = len(stage.wanted)
    row.figures += [
        Figure(f"FLUSHALL -> all {count} registered", "s", healed, bare),
        Figure("the operator's CPU for it", "s", [each.cpu for each in wipes]),
        Figure(f"registered -> last first tick due (every {every / 1000:g} s, all seen by the worker)", "s", lateness),
    ]
    row.at_most("flushall-1000", median(ratios(healed, bare)), "x", 1.5, "x the floor")
    row.at_most("flushall-1000-first-tick", max(lateness), "s", every / 1000, "(its own interval)")
    row.raw["wipes"] = [each.raw for each in wipes]
    return row


def _first_ticks(stage: Stage, worker: Partner, *, seconds: float) -> dict[str, list[int]]:
    """When each schedule's first tick since the last mark was due, and when it came (epoch ms)."""
    found: dict[str, list[int]] = {}
    total = len(stage.wanted)

    def all_seen() -> bool:
        found.update(worker.ask({"do": "report"})["first"])
        return len(found) >= total

    stage.until(all_seen, seconds, f"a tick of each of {total} schedules", look=0.5)
    return found


def _restart(stage: Stage, sizes: Sizes, floor: Floor) -> Row:
    """SIGKILL, a second without, a new and empty server on the same port."""
    row = Row("redis-restart", raw={"floor_s_by_concurrency": floor.tried})
    healed, bare = [], []
    for run in range(sizes.runs):
        say(f"redis-restart, run {run + 1} of {sizes.runs}")
        stage.settle()
        bare.append(floor.seconds(len(stage.wanted)))
        stage.redis.kill()
        time.sleep(_DOWN_SECONDS)
        starting = threading.Thread(target=stage.redis.start)
        starting.start()
        first_pong = _first_pong(stage.redis.port)
        healed.append(stage.until_registered(first_pong))
        starting.join()
    row.raw |= {"healed_s": healed, "floor_s": bare}
    row.figures.append(Figure(f"first PONG -> all {len(stage.wanted)} registered", "s", healed, bare))
    bound = median([1.5 * each + _RECONNECT_SECONDS for each in bare])
    note = f"(1.5 x the floor of {number(median(bare))} s + {_RECONNECT_SECONDS:g} s to reconnect)"
    row.at_most("redis-restart", median(healed), "s", bound, note)
    return row


def _first_pong(port: int) -> float:
    """Ask without pause until it answers; when that was (time.monotonic())."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as asking:
            asking.sendall(b"PING\r\n")
            if asking.recv(16).startswith(b"+PONG"):
                return time.monotonic()
        time.sleep(_PING_GAP)
    raise PartFailed(f"no PONG from port {port} within {_PATIENCE:g} s")
