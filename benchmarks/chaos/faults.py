"""The harm. Each does it, returns once it is over, and says what it did. Times are multiplied by the pace."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psycopg import sql

from benchmarks.chaos.site import Site, Slot
from benchmarks.lab import harm
from embedded.errors import PartFailed

_START_SECONDS = 30.0
_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Ground:
    """Where, with which random numbers, and how fast."""

    site: Site
    dice: random.Random
    pace: float

    def slot(self) -> Slot:
        """Any worker."""
        return self.dice.choice(self.site.slots)

    def span(self, least: float, most: float) -> float:
        """Seconds."""
        return self.dice.uniform(least, most) * self.pace


def kill_worker(ground: Ground) -> str:
    """SIGKILL of one worker, and a new one a moment later."""
    slot = ground.slot()
    slot.kill()
    down = ground.span(0, 3)
    time.sleep(down)
    slot.start()
    return f"worker {slot.number}, down {down:.1f} s"


def kill_workers(ground: Ground) -> str:
    """SIGKILL of all at once."""
    for slot in ground.site.slots:
        slot.kill()
    time.sleep(ground.span(0, 1))
    for slot in ground.site.slots:
        slot.start()
    return "all"


def stop_worker(ground: Ground) -> str:
    """SIGTERM, as a deployment does, and a new one at once."""
    slot = ground.slot()
    slot.worker.stop()
    slot.start()
    return f"worker {slot.number}"


def freeze_worker(ground: Ground) -> str:
    """SIGSTOP for longer than its leases, so that others have its rows when it goes on."""
    slot = ground.slot()
    seconds = ground.dice.uniform(5, 8)
    harm.last(seconds, slot.worker.freeze, slot.worker.thaw)
    return f"worker {slot.number}, {seconds:.1f} s"


def step_clock(ground: Ground) -> str:
    """One worker's clock is set ahead or back for a while."""
    slot = ground.slot()
    step = ground.dice.choice((-3600.0, -30.0, 30.0, 3600.0, 86_400.0))
    harm.last(ground.span(2, 6), lambda: slot.step(step), lambda: slot.step(0))
    ground.site.tend()
    return f"worker {slot.number}, {step:+g} s"


def restart_postgres(ground: Ground) -> str:
    """Shut down fast, and start again."""
    ground.site.stage.postgres.stop()
    time.sleep(ground.span(0, 2))
    _start_postgres(ground.site)
    return "fast"


def crash_postgres(ground: Ground) -> str:
    """SIGKILL of the server with every backend; it recovers from its log."""
    ground.site.stage.postgres.kill()
    time.sleep(ground.span(0, 2))
    _start_postgres(ground.site)
    return "SIGKILL"


def cut(ground: Ground) -> str:
    """Break the workers' connections to the database, several times."""
    times = ground.dice.randint(1, 5)
    for _ in range(times):
        ground.site.proxy.cut()
        time.sleep(ground.span(0, 0.5))
    return f"{times} times"


def hold(ground: Ground) -> str:
    """Nothing gets through to the database or back, longer than a lease; then all of it at once."""
    seconds = ground.dice.uniform(1, 7)
    harm.last(seconds, ground.site.proxy.hold, ground.site.proxy.release)
    return f"{seconds:.1f} s"


def time_out(ground: Ground) -> str:
    """The server's statement_timeout is so short that statements of ordinary size end in an error."""
    milliseconds = ground.dice.choice((2, 5, 10))
    harm.last(
        ground.span(1, 4),
        lambda: _statement_timeout(ground.site, milliseconds),
        lambda: _statement_timeout(ground.site, 0),
    )
    return f"{milliseconds} ms"


def cancel(ground: Ground) -> str:
    """Whatever runs at the moment is cancelled, again and again."""
    done = 0
    statement = f"SELECT count(pg_cancel_backend(pid)) {_OTHERS} AND state = 'active'"
    with ground.site.admin() as connection:
        for _ in range(20):
            found = connection.execute(statement).fetchone()
            done += int(str(found[0])) if found else 0
            time.sleep(ground.span(0, 0.1))
    return f"{done} statements"


def lock(ground: Ground) -> str:
    """Somebody holds the whole table."""
    seconds = ground.span(1, 6)
    with ground.site.admin() as connection, connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '10s'")
        connection.execute("LOCK TABLE tickkeeper.outbox IN ACCESS EXCLUSIVE MODE")
        time.sleep(seconds)
    return f"{seconds:.1f} s"


#: By name, with how often each comes among a hundred.
FAULTS: dict[str, tuple[Callable[[Ground], str], int]] = {
    "SIGKILL of a worker": (kill_worker, 24),
    "SIGKILL of all workers": (kill_workers, 6),
    "SIGTERM of a worker": (stop_worker, 6),
    "SIGSTOP of a worker": (freeze_worker, 10),
    "clock step": (step_clock, 12),
    "PostgreSQL restart": (restart_postgres, 6),
    "PostgreSQL SIGKILL": (crash_postgres, 6),
    "connections cut": (cut, 10),
    "network held": (hold, 6),
    "statement_timeout": (time_out, 6),
    "statements cancelled": (cancel, 4),
    "table locked": (lock, 4),
}


def sequence(dice: random.Random) -> Iterator[str]:
    """Their names for ever."""
    return harm.sequence(dice, {name: weight for name, (_, weight) in FAULTS.items()})


def _start_postgres(site: Site) -> None:
    """Until it stays: a server refuses to start while a backend of the killed one is not quite gone."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            site.stage.postgres.start()
        except PartFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _statement_timeout(site: Site, milliseconds: int) -> None:
    """For every session: those that are there are ended, since they would keep the old one."""
    with site.admin() as connection:
        connection.execute("SET statement_timeout = 0")
        name = sql.Identifier(connection.info.dbname)
        value = sql.Literal(f"{milliseconds}ms")
        connection.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = {}").format(name, value))
        connection.execute(f"SELECT count(pg_terminate_backend(pid)) {_OTHERS}")
