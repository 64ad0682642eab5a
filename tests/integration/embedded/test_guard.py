"""Nothing outlives the process that started it, however that process ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedded.guard import alive, descendants
from embedded.process import wait_for
from embedded.redis import Redis

ROOT = Path(__file__).parents[3]

# A shell starts what runs in its background with SIGINT ignored, nohup with SIGHUP: here they must count.
OWNER = """
import json, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from embedded import process
from embedded.postgres import Postgres
from embedded.redis import Redis

redis, postgres, fork = Redis().start(), Postgres().start(), 0
{extra}
folders = [str(folder) for folder in process._state().folders]
print(json.dumps(dict(redis=redis.pid, postgres=postgres.pid, fork=fork, folders=folders)), flush=True)
{then}
"""
FORK = "fork = os.fork()\nif fork == 0: "


@pytest.fixture
def start_owner() -> Iterator[Callable[..., "Owner"]]:
    owners: list[Owner] = []

    def start(extra: str = "", then: str = "time.sleep(600)") -> Owner:
        owners.append(Owner(extra, then))
        return owners[-1]

    yield start
    for owner in owners:
        owner.close()


class Owner:
    """A process that started a Redis and a PostgreSQL."""

    def __init__(self, extra: str, then: str) -> None:
        argv = [sys.executable, "-c", OWNER.format(extra=extra, then=then)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        told = json.loads(line)
        self.fork, self.folders = told["fork"], [Path(folder) for folder in told["folders"]]
        self.servers = [told["redis"], told["postgres"], *descendants(told["postgres"])]

    def wait_until_nothing_is_left(self) -> None:
        assert len(self.servers) > 3
        assert len(self.folders) >= 3  # the servers' own and the template
        self.process.wait(timeout=60)
        wait_for(lambda: not any(map(alive, self.servers)), seconds=30, what="servers gone")
        wait_for(lambda: not any(folder.exists() for folder in self.folders), seconds=30, what="folders gone")

    def close(self) -> None:
        self.process.kill()
        if self.fork and alive(self.fork):
            os.kill(self.fork, signal.SIGKILL)
        self.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_servers_and_folders_are_gone_after_the_owner_got(number, start_owner):
    owner = start_owner()
    assert all(alive(pid) for pid in owner.servers[:2])
    assert all(folder.is_dir() for folder in owner.folders)
    owner.process.send_signal(number)
    owner.wait_until_nothing_is_left()


def test_servers_are_gone_after_an_exit_that_closed_nothing(start_owner):
    owner = start_owner(then="sys.stdin.readline(); sys.exit(3)")
    owner.process.stdin.write("go\n")
    owner.process.stdin.flush()
    owner.wait_until_nothing_is_left()
    assert owner.process.returncode == 3


def test_frozen_servers_are_gone_too(start_owner):
    owner = start_owner(extra="redis.freeze(); postgres.freeze()")
    owner.process.kill()
    owner.wait_until_nothing_is_left()


def test_a_fork_that_outlives_the_owner_does_not_keep_the_servers_alive(start_owner):
    owner = start_owner(extra=f"{FORK} os.close(1); os.close(2); time.sleep(600)")
    owner.process.kill()
    owner.wait_until_nothing_is_left()
    assert alive(owner.fork)


def test_a_fork_that_ends_does_not_take_the_servers_with_it(start_owner):
    ping = "with redis.client() as client: client.ping()\nassert postgres.running"
    owner = start_owner(extra=f"{FORK} sys.exit(0)\nos.waitpid(fork, 0)\n{ping}")
    assert all(alive(pid) for pid in owner.servers[:2])
    owner.process.kill()
    owner.wait_until_nothing_is_left()


def test_a_server_outlives_the_thread_that_started_it():
    server = Redis()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        with server.client() as client:
            assert client.ping()
    finally:
        server.close()
