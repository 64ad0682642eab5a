"""``python -m benchmarks.chaos``: harm for MINUTES (10), by SEED; exit 1 for a row lost, doubled or out of order."""

import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.chaos.account import Account, of
from benchmarks.chaos.faults import FAULTS
from benchmarks.chaos.play import Fault, play, rest
from benchmarks.chaos.settings import Settings, settings
from benchmarks.chaos.site import Site
from benchmarks.lab.harm import command
from benchmarks.lab.processes import load
from benchmarks.lab.progress import say
from benchmarks.lab.results import keep, machine

_RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> int:
    """0: every row is delivered or dead, as it must be; 1: it is not, or a part failed; 2: a variable is wrong."""
    return command("chaos-outbox", settings, _chaos)


def _chaos(asked: Settings) -> int:
    print(f"chaos-outbox: {asked.minutes:g} minutes, SEED={asked.seed}", flush=True)
    before = load()
    with Site(random.Random(asked.seed)) as site:
        say("workers and producer run: harm begins")
        done = play(site, minutes=asked.minutes, pace=asked.pace)
        say("harm is over: waiting until the outbox is empty")
        empty = rest(site, pace=asked.pace)
        found = of(site)
        ended = sum(slot.ended for slot in site.slots)
        if not empty or found.faults:
            for slot in site.slots:
                print(f"worker {slot.number}'s log ends in:\n{slot.worker.log_tail()}", file=sys.stderr)
    print(_faults_table(done))
    print(f"\n{found.table}\n")
    kept = keep("chaos", _document(asked, done, found, [before, load()]), Path(os.environ.get("RESULTS") or _RESULTS))
    say(f"raw figures: {kept}")
    for fault in found.faults:
        print(f"chaos-outbox: {fault}")
    rows = sum(line.enqueued for line in found.lines)
    verdict = "every row is accounted for" if not found.faults else f"{len(found.faults)} things are wrong"
    ends = f", {ended} workers ended by themselves" if ended else ""
    print(f"chaos-outbox: {len(done)} faults, {rows} rows{ends}, {verdict}: {'failed' if found.faults else 'ok'}")
    return 1 if found.faults or not rows else 0


def _document(asked: Settings, done: Sequence[Fault], found: Account, loads: list[float]) -> dict[str, object]:
    return {
        "machine": machine(),
        "load": loads,
        "settings": asdict(asked),
        "faults": [asdict(each) for each in done],
        "account": asdict(found),
    }


def _faults_table(done: Sequence[Fault]) -> str:
    counts = Counter(each.kind for each in done)
    width = max(map(len, FAULTS))
    return "\n".join(f"{kind.ljust(width)}  {counts[kind]}" for kind in FAULTS if counts[kind])


if __name__ == "__main__":
    sys.exit(main())
