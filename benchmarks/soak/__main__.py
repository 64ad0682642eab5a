"""``python -m benchmarks.soak``: faults for MINUTES (15), by SEED; exit 1 when a schedule does not tick in the end."""

import os
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.lab.figures import median, number
from benchmarks.lab.harm import command
from benchmarks.lab.progress import say
from benchmarks.lab.results import keep, machine
from benchmarks.lab.stage import Stage
from benchmarks.soak.faults import FAULTS
from benchmarks.soak.play import Fault, play, silent
from benchmarks.soak.settings import Settings, settings

_RESULTS = Path(__file__).resolve().parents[1] / "results"
_HEAD = ("fault", "how often", "heal median, alone [s]", "heal longest [s]", "not healed")


def main() -> int:
    """0: every schedule ticks; 1: one does not, or a part failed; 2: a variable is wrong."""
    return command("soak", settings, _soak)


def _soak(asked: Settings) -> int:
    wanted = asked.schedules()
    print(f"soak: {len(wanted)} schedules, {asked.minutes:g} minutes, SEED={asked.seed}", flush=True)
    with Stage(wanted) as stage:
        worker = stage.start_worker()
        stage.start_operator()
        say("all registered: faults begin")
        done = play(stage, stage.start_bare(), minutes=asked.minutes, dice=random.Random(asked.seed))
        say("faults are over: waiting for a tick of each schedule")
        missing = silent(stage, worker)
    print(table(done))
    kept = keep(
        "soak",
        {"machine": machine(), "settings": asdict(asked), "faults": [asdict(each) for each in done], "silent": missing},
        Path(os.environ.get("RESULTS") or _RESULTS),
    )
    say(f"raw figures: {kept}")
    for name, why in missing.items():
        print(f"soak: {name} does not tick: {why}")
    healed = sum(each.healed is not None for each in done)
    verdict = "every schedule ticks" if not missing else f"{len(missing)} of {len(wanted)} do not tick"
    print(f"soak: {len(done)} faults, {healed} healed in time, {verdict}: {'failed' if missing else 'ok'}")
    return 1 if missing else 0


def table(done: Sequence[Fault]) -> str:
    """One line for each kind of fault. Those that came together share the time of the slowest: no median of them."""
    lines: list[Sequence[str]] = [_HEAD]
    for kind in FAULTS:
        all_of_it = [each for each in done if each.kind == kind]
        alone = [each.healed for each in all_of_it if each.healed is not None and not each.together]
        healed = [each.healed for each in all_of_it if each.healed is not None]
        if all_of_it:
            middle = number(median(alone)) if alone else "-"
            longest = number(max(healed)) if healed else "-"
            lines.append((kind, str(len(all_of_it)), middle, longest, str(len(all_of_it) - len(healed))))
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


if __name__ == "__main__":
    sys.exit(main())
