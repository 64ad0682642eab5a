"""One peer under observation: it runs, its Redis is wiped, and the clock tells whether it ever fires again."""

import math
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.keeper.peers.catalogue import Peer
from embedded.errors import PartFailed
from embedded.process import Process, make_folder, remove_folder, wait_for
from embedded.redis import Redis

_APPS = Path(__file__).with_name("apps")
_START_SECONDS = 60.0
_WARM_FIRINGS = 3
#: A firing that was under way at the wipe may still come.
_UNDER_WAY = 2.0


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Seconds. ``again``: from the wipe to the first firing that belongs to a chain that goes on; infinite when there
    was none. ``restarted``: from the start of new processes to a firing. ``ended``: processes that ended by themselves.
    """

    again: float
    restarted: float
    firings: int
    ended: int

    @property
    def raw(self) -> dict[str, Any]:
        """For the file of raw figures."""
        return asdict(self)


def firings(path: Path) -> list[float]:
    """When it fired (epoch seconds)."""
    return [float(line) for line in path.read_text().split()] if path.exists() else []


def resumed(times: list[float], wiped: float, until: float) -> float:
    """Seconds from the wipe to the first firing of those that go on to the end; infinite where they stopped."""
    after = [when - wiped for when in times if when > wiped]
    goes_on = any(when > (until - wiped) / 2 for when in after)
    if not goes_on:
        return math.inf
    # One that was under way is no sign of life: what counts is the first of an unbroken rest.
    later = [when for when in after if when > _UNDER_WAY]
    return after[0] if later and later[0] <= 2 * _UNDER_WAY else later[0]


class Watched:
    """One peer with a Redis of its own."""

    def __init__(self, peer: Peer) -> None:
        """Describe it; ``observe`` starts and ends it all."""
        self._peer = peer
        self._folder = make_folder("peer")
        self._ticks = self._folder / "ticks"

    def observe(self, seconds: float) -> Aftermath:
        """Start, wipe, watch for ``seconds``, start anew. Raises PartFailed when it does not fire at all."""
        interpreter = self._peer.interpreter()
        try:
            with Redis() as redis:
                with self._running(interpreter, redis) as programs:
                    self._until_firing(_WARM_FIRINGS)
                    wiped = time.time()
                    with redis.client() as client:
                        client.flushall()
                    time.sleep(seconds)
                    ended = sum(not program.running for program in programs.started)
                    times = firings(self._ticks)
                again = resumed(times, wiped, wiped + seconds)
                return Aftermath(again, self._restarted(interpreter, redis), sum(t > wiped for t in times), ended)
        finally:
            remove_folder(self._folder)

    def _restarted(self, interpreter: Path, redis: Redis) -> float:
        self._ticks.unlink(missing_ok=True)
        started = time.monotonic()
        with self._running(interpreter, redis):
            try:
                self._until_firing(1)
            except PartFailed:
                return math.inf
            return time.monotonic() - started

    def _until_firing(self, times: int) -> None:
        what = f"{self._peer.name} fires"
        try:
            wait_for(lambda: len(firings(self._ticks)) >= times, seconds=_START_SECONDS, what=what)
        except PartFailed as error:
            raise PartFailed(f"{error}: {self._log_tail()}") from None

    def _running(self, interpreter: Path, redis: Redis) -> "_Programs":
        env = os.environ | {"PEER_REDIS": redis.url, "PEER_TICKS": str(self._ticks), "PYTHONPATH": str(_APPS)}
        return _Programs(self._peer, interpreter, redis.url, env, self._folder)

    def _log_tail(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-800:] for log in sorted(self._folder.glob("*.log")))


class _Programs:
    """The peer's processes, for the length of a ``with``."""

    def __init__(self, peer: Peer, interpreter: Path, url: str, env: Mapping[str, str], folder: Path) -> None:
        self._peer = peer
        self._interpreter = interpreter
        self._url = url
        self._env = dict(env)
        self._folder = folder
        self._stack = ExitStack()
        self.started: list[Process] = []

    def __enter__(self) -> "_Programs":
        if self._peer.registers:
            subprocess.run(self._argv(self._peer.registers), env=self._env, check=True, timeout=60)
        for index, program in enumerate(self._peer.programs):
            log = self._folder / f"{index}.log"
            process = Process(self._argv(program), log=log, env=self._env, cwd=self._folder)
            process.start()
            self._stack.callback(process.kill)
            self.started.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _argv(self, program: tuple[str, ...]) -> list[str]:
        words = [word.format(redis=self._url) for word in program]
        return [str(self._interpreter), *(str(_APPS / word) if word.endswith(".py") else word for word in words)]
