"""One fault after another, sometimes two at once; then rest, until the outbox is empty."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from benchmarks.chaos.faults import FAULTS, Ground, sequence
from benchmarks.chaos.site import Site
from benchmarks.lab.progress import say
from benchmarks.outbox import table

_MINUTE = 60.0
_TELL_EVERY = 60.0
#: How often a second fault comes while the first lasts: harm to a worker beside harm to the database.
_BESIDE = 0.2
_REST = (0.5, 4.0)
#: What is left is given so long: leases, locks and retries all end well before.
_PATIENCE = 300.0
_KILL = "SIGKILL of a worker"
_WORKERS_ONLY = frozenset({_KILL, "SIGKILL of all workers", "SIGTERM of a worker", "SIGSTOP of a worker"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One that was done; ``at`` in seconds since the start. ``beside``: while another lasted."""

    kind: str
    what: str
    at: float
    beside: bool = False


def play(site: Site, *, minutes: float, pace: float) -> list[Fault]:
    """Do harm for so long; what was done. Everything runs again when this returns."""
    ground = Ground(site, site.dice, pace)
    kinds = sequence(site.dice)
    done: list[Fault] = []
    started = told = time.monotonic()
    with ThreadPoolExecutor(max_workers=1) as threads:
        while time.monotonic() - started < minutes * _MINUTE:
            kind, at = next(kinds), time.monotonic() - started
            beside = None
            if kind not in _WORKERS_ONLY and site.dice.random() < _BESIDE:
                beside = threads.submit(FAULTS[_KILL][0], ground)
            done.append(Fault(kind, FAULTS[kind][0](ground), at))
            if beside is not None:
                done.append(Fault(_KILL, beside.result(), at, beside=True))
            if time.monotonic() - told > _TELL_EVERY:
                told = time.monotonic()
                say(f"{len(done)} faults so far, {_left(site)} rows in the outbox; the last: {kind} ({done[-1].what})")
            site.wait(ground.span(*_REST))
    return done


def rest(site: Site, *, pace: float) -> bool:
    """Nothing more comes in and nothing more is harmed: whether the outbox empties."""
    site.producer.stop()
    return site.wait(_PATIENCE * pace, lambda: _left(site) == 0)


def _left(site: Site) -> int:
    with suppress(psycopg.Error), site.admin() as connection:
        return table.left(connection)
    return -1
