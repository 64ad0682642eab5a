"""Redis in its other forms, for real: a cluster of three masters, a master with a replica and sentinels."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from embedded.ports import free_port
from embedded.process import Process
from embedded.redis import Redis, find_redis_server

SLOTS = 16384


def wait_for(holds: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """Poll until ``holds`` returns something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


@dataclass
class Cluster:
    """Three masters that share the slots."""

    nodes: list[Redis]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def node_of(self, key: str) -> Redis:
        """Who holds a key's slot now."""
        with self.nodes[0].client() as client:
            slot = client.execute_command("CLUSTER", "KEYSLOT", key)
            for first, last, (_, port, *_rest) in self._slots(client):
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"nobody holds {key}")

    def move_slot_of(self, key: str, to: Redis) -> None:
        """Hand a key's slot with all its keys to another master, as redis-cli --cluster reshard does."""
        source = self.node_of(key)
        with source.client() as old, to.client() as new:
            slot = old.execute_command("CLUSTER", "KEYSLOT", key)
            old_id, new_id = (client.execute_command("CLUSTER", "MYID") for client in (old, new))
            new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", old_id)
            old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", new_id)
            while keys := old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                old.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
            for node in self.nodes:
                with node.client() as client:
                    client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", new_id)

    @staticmethod
    def _slots(client: Any) -> list[Any]:
        raw = client.execute_command("CLUSTER", "SLOTS")
        if isinstance(raw, dict):
            return [(first, last, value["primary"]) for (first, last), value in raw.items()]
        return [(entry[0], entry[1], entry[2]) for entry in raw]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(Redis(cluster_enabled="yes", cluster_node_timeout=2000, cluster_port=free_port()))
            for _ in range(3)
        ]
        share = SLOTS // 3 + 1
        for index, node in enumerate(nodes):
            with node.client() as client:
                last = min(SLOTS, (index + 1) * share) - 1
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", index * share, last)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        with nodes[0].client() as first:
            for node in nodes[1:]:
                bus = int(node._config["cluster_port"])
                first.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)

        def agreed() -> bool:
            states = []
            for node in nodes:
                with node.client() as client:
                    info = client.execute_command("CLUSTER", "INFO")
                    text = info if isinstance(info, str) else str(info)
                    states.append("cluster_state" in text and "ok" in text.split("cluster_state")[1][:8])
            return all(states)

        wait_for(agreed, "the cluster's state is ok")
        yield Cluster(nodes)


@dataclass
class Sentinels:
    """A master, a replica, and three sentinels that watch them."""

    master: Redis
    replica: Redis
    ports: list[int] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + "/mymaster/0"


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    with ExitStack() as stack:
        master = stack.enter_context(Redis())
        replica = stack.enter_context(Redis(replicaof=f"127.0.0.1 {master.port}"))
        with replica.client() as client:
            wait_for(lambda: client.info("replication")["master_link_status"] == "up", "the replica follows")
        both = Sentinels(master, replica)
        for _ in range(3):
            port = free_port()
            folder = tmp_path / str(port)
            folder.mkdir()
            conf = folder / "sentinel.conf"
            conf.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
                f"sentinel monitor mymaster 127.0.0.1 {master.port} 2\n"
                "sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 3000\n"
            )
            process = Process([find_redis_server(), conf, "--sentinel"], log=folder / "log", cwd=folder)
            process.start()
            stack.callback(process.stop)
            both.ports.append(port)
            both.processes.append(process)
        import redis

        def known() -> bool:
            for port in both.ports:
                try:
                    with redis.Redis(port=port, decode_responses=True, socket_timeout=2) as client:
                        found = client.sentinel_master("mymaster")
                except redis.RedisError:
                    return False
                if found["num-other-sentinels"] < 2 or found["num-slaves"] < 1:
                    return False
            return True

        wait_for(known, "the sentinels know each other and the replica")
        yield both
