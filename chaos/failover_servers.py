"""Servers with failover: a primary watched by Sentinels, and a Cluster of six nodes."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

from chaos.processes import die_with_parent
from chaos.storages import StorageUnderTest, stored_keys, wait_for
from tests.servers import SLOTS, NoServerError, Server, free_port, redis_program

__all__ = ["ClusterServers", "SentinelServers", "cluster_state_ok", "family_slot"]

#: Weights of the faults; their order is part of the plan of a seed.
ON_SENTINEL: dict[str, float] = {"kill_primary": 3, "freeze_primary": 2, "kill_child": 2, "kill_worker": 1}
ON_CLUSTER: dict[str, float] = {"kill_node": 3, "freeze_node": 2, "move_slot": 3, "kill_child": 2, "kill_worker": 1}

AOF = ("--appendonly", "yes", "--appendfsync", "always")


class SentinelServers(StorageUnderTest):
    """A primary and two replicas, watched by three Sentinels with a quorum of two.

    A primary without a replica refuses writes: one that was cut off and comes back would otherwise accept writes until
    the Sentinels demote it, and all of those would be lost.
    """

    name = "sentinel"
    weights = ON_SENTINEL
    SERVICE = "mymaster"

    def __init__(self, folder: Path) -> None:
        options = (*AOF, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
        self.servers = [Server(redis_program(), *options).start()]
        for _ in range(2):
            self.servers.append(Server(redis_program(), *options, *self._replica_options(self.servers[0])).start())
        self.ports = [free_port() for _ in range(3)]
        self.sentinels = [self._start_sentinel(folder / f"sentinel-{port}.conf", port) for port in self.ports]
        try:
            self._wait_for_sentinels()
        except BaseException:
            self.remove()
            raise

    @staticmethod
    def _replica_options(primary: Server) -> tuple[str, str]:
        return ("--replicaof", f"127.0.0.1 {primary.port}")

    def _start_sentinel(self, config: Path, port: int) -> subprocess.Popen[bytes]:
        config.write_text(
            f"sentinel monitor {self.SERVICE} 127.0.0.1 {self.servers[0].port} 2\n"
            f"sentinel down-after-milliseconds {self.SERVICE} 1000\n"
            f"sentinel failover-timeout {self.SERVICE} 4000\n"
        )
        command = [redis_program(), str(config), "--sentinel", "--port", str(port), "--bind", "127.0.0.1"]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=die_with_parent)

    def _wait_for_sentinels(self) -> None:
        """Wait until every Sentinel knows the two others and both replicas: before that none can start a failover."""

        def ready() -> bool:
            for port in self.ports:
                state = self._execute(port, "SENTINEL", "MASTER", self.SERVICE)
                if not state or state[b"num-other-sentinels"] != b"2" or state[b"num-slaves"] != b"2":
                    return False
            return True

        wait_for(ready, "the Sentinels do not know each other")

    def _execute(self, port: int, *command: str) -> Any:
        import redis

        client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=2)
        try:
            return client.execute_command(*command)
        except redis.RedisError:
            return None
        finally:
            client.close()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+sentinel://{hosts}/{self.SERVICE}"

    def describe(self) -> str:
        return "redis: a primary, two replicas, three Sentinels"

    @property
    def primary(self) -> Server:
        """The server that the Sentinels name as the primary."""
        for port in self.ports:
            answer = self._execute(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.SERVICE)
            if answer:
                return next(each for each in self.servers if each.port == int(answer[1]))
        raise NoServerError("no Sentinel answers")

    def is_primary(self, server: Server) -> bool:
        answer = self._execute(server.port, "ROLE")
        return bool(answer) and answer[0] == b"master"

    def rejoin(self, server: Server) -> None:
        """Start a dead server again, as a replica of the current primary."""
        primary = self.primary
        options = [each for each in server.options if "replicaof" not in each and not each.startswith("127.0.0.1 ")]
        server.options = (*options, *(self._replica_options(primary) if primary is not server else ()))
        server.restart()

    def heal(self) -> None:
        for server in self.servers:
            if server.process is None:
                self.rejoin(server)
        wait_for(lambda: self.is_primary(self.primary), "there is no primary")

    def leftovers(self) -> list[str]:
        with contextlib.closing(self.primary.client()) as client:
            return stored_keys(client)

    def remove(self) -> None:
        for sentinel in self.sentinels:
            sentinel.kill()
            sentinel.wait()
        for server in self.servers:
            server.remove()


class ClusterServers(StorageUnderTest):
    """Three primaries with a replica each; the URLs of the roles name different nodes."""

    name = "cluster"
    weights = ON_CLUSTER

    def __init__(self) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500", *AOF)
        self.nodes = [Server(redis_program(), *options).start() for _ in range(6)]
        self._roles = 0
        clients = [node.client() for node in self.nodes]
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, client in enumerate(clients[:3]):
            first, last = SLOTS * number // 3, SLOTS * (number + 1) // 3 - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port)
        wait_for(lambda: all(len(self.seen_by(node)) == 6 for node in self.nodes), "the nodes do not meet")
        for number, client in enumerate(clients[3:]):
            client.execute_command("CLUSTER", "REPLICATE", self.id_of(self.nodes[number]))
        for client in clients:
            client.close()
        self.heal()

    def seen_by(self, node: Server) -> dict[str, Any]:
        """Return the cluster as a node sees it, by the address of each node; empty if it does not answer."""
        import redis

        try:
            with contextlib.closing(redis.Redis(host="127.0.0.1", port=node.port, socket_timeout=2)) as client:
                return client.cluster("NODES")  # type: ignore[return-value]
        except redis.RedisError:
            return {}

    def id_of(self, node: Server) -> str:
        return next(each["node_id"] for each in self.seen_by(node).values() if "myself" in each["flags"])

    def primaries(self) -> list[Server]:
        """Return the nodes that serve slots, as the first primary without a failed neighbour sees it."""
        for viewer in self.nodes:
            seen = self.seen_by(viewer)
            ports = {int(address.rpartition(":")[2]) for address, each in seen.items() if each["slots"]}
            found = [node for node in self.nodes if node.port in ports]
            if len(found) >= 3 and viewer in found and all("fail" not in each["flags"] for each in seen.values()):
                return found
        return []

    def serves(self, slot: int) -> Server | None:
        """Return the primary of a slot, or None."""
        for viewer in self.primaries():
            for address, each in self.seen_by(viewer).items():
                for part in each["slots"]:
                    if int(part[0]) <= slot <= int(part[-1]):
                        return next(node for node in self.nodes if node.port == int(address.rpartition(":")[2]))
        return None

    @property
    def url(self) -> str:
        return f"redis+cluster://{self.nodes[0].address}"

    def url_for(self, role: str) -> str:
        self._roles += 1
        return f"redis+cluster://{self.nodes[self._roles % len(self.nodes)].address}"

    def describe(self) -> str:
        return "redis: a cluster of three primaries and three replicas"

    def healthy(self) -> bool:
        """Return whether every node reports the cluster as ok and every replica is connected to its primary."""
        for node in self.nodes:
            seen = self.seen_by(node)
            if len(seen) != 6 or any("fail" in flag for each in seen.values() for flag in each["flags"].split(",")):
                return False
            with contextlib.closing(node.client()) as client:
                if not cluster_state_ok(client):
                    return False
                about = client.info("replication")
                if about["role"] == "slave" and about["master_link_status"] != "up":
                    return False
        return len(self.primaries()) >= 3

    def heal(self) -> None:
        for node in self.nodes:
            if node.process is None:
                node.restart()
        wait_for(self.healthy, "the cluster does not become healthy")

    def leftovers(self) -> list[str]:
        left: list[str] = []
        for node in self.primaries():
            with contextlib.closing(node.client()) as client:
                left += stored_keys(client)
        return left

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


def cluster_state_ok(client: Any) -> bool:
    """Return whether a node reports that every slot is served."""
    return client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"


def family_slot(family: str) -> int:
    """Return the slot of a family of queues."""
    from redis.crc import key_slot

    return key_slot(f"{{{family}}}".encode())
