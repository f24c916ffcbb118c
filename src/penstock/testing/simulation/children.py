"""Child processes of a simulated worker: the real supervisor, with children that are nodes instead of processes.

A child has the clocks of its parent and dies with it. Its claim table is the real one, in memory that both read; its
channel is a link between two nodes. Stacks, signals and process groups are not simulated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from msgspec.structs import replace

from penstock.host import AppHost
from penstock.model.worker_info import Heartbeat
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.runtimes import LeaseNode, Steps, running_node
from penstock.worker.handlers import select_handlers, share_of
from penstock.worker.lease_thread import LeaseThread
from penstock.worker.supervisor import Supervisor
from penstock.worker.supervisor.channel import Channel
from penstock.worker.supervisor.child import Child
from penstock.worker.supervisor.child_handle import ChildHandle
from penstock.worker.supervisor.child_leases import ChildLeases
from penstock.worker.supervisor.child_runtime import ChildRuntime
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.thread_pool import ThreadPool

__all__ = ["SimulatedSupervisor"]

#: How long (seconds) a message takes, until a parent sees the end of a child, and at least until a child has started.
MESSAGE, EXIT, START = 0.0005, 0.002, 0.1


class LinkEnd:
    """One end of a link between two nodes, with the methods of a `Channel`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._arrived: deque[str] = deque()
        self._closed = False
        self.received: Callable[[str], None] | None = None
        self.peer: LinkEnd = self

    def send(self, message: str) -> None:
        """Send a message; it is lost if the other end is closed."""
        peer = self.peer
        if not peer._closed:
            peer._arrived.append(message)
            peer._node.call_in(MESSAGE, peer.read_rest)

    def read_rest(self) -> None:
        """Receive the messages that were sent so far."""
        while self._arrived and self.received is not None and not self._closed:
            self.received(self._arrived.popleft())

    def close(self) -> None:
        """Close this end."""
        self._closed = True


class SimulatedProcess:
    """The part of a process object that `ChildHandle` uses."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.pid = node.pid
        self.exitcode: int | None = None

    def kill(self) -> None:
        """End the process."""
        self._node.kill()

    def close(self) -> None:
        """Do nothing: there is no handle of a process."""


class SimulatedChildLeases(ChildLeases):
    """The leases of a child whose exit is that of its node."""

    def _exit(self) -> None:
        running_node().kill()


class SimulatedChildRuntime(ChildRuntime):
    """A child's runtime without threads."""

    _leases_class = SimulatedChildLeases

    def _new_thread_pool(self) -> ThreadPool:
        return Steps()


class SimulatedLife(Child):
    """The life of a child on a node."""

    _runtime_class = SimulatedChildRuntime

    def _connect(self, end: Any) -> Channel:
        end.received = self._receive
        return end


class SimulatedChild(ChildHandle):
    """A child process as a node."""

    def __init__(
        self,
        config: ChildConfig,
        received: Callable[[ChildHandle, str], None],
        died: Callable[[ChildHandle], None],
        child_app: Callable[[Node], AppHost],
    ) -> None:
        super().__init__(config, received, died)
        self._child_app = child_app

    async def start(self, context: object) -> None:
        """Start the child on a new node, with the clocks of this one."""
        parent = running_node()
        await asyncio.sleep(START + parent.random.random())
        node = parent.scheduler.child(parent)
        process = SimulatedProcess(node)
        self._process = cast("Any", process)
        ours, theirs = LinkEnd(parent), LinkEnd(node)
        ours.peer, theirs.peer = theirs, ours
        ours.received = self._receive
        self._channel = cast("Any", ours)
        node.at_end.append(self.table.close)

        def ended() -> None:
            process.exitcode = process.exitcode if process.exitcode is not None else -9
            parent.call_in(EXIT, self._report_end)

        node.on_kill.append(ended)
        node.start(self._live(node, theirs, process))

    async def _live(self, node: Node, end: LinkEnd, process: SimulatedProcess) -> None:
        config, app = self._config, self._child_app(node)
        handlers = select_handlers(app, config.queues, config.capacity)
        try:
            life = SimulatedLife(config, self.table, app, share_of(handlers, config.slot, config.slots))
            await life.work(cast("Any", end))
            process.exitcode = 0
        finally:
            node.kill()

    def memory(self) -> int:
        """Return 0: the memory of a node is not known."""
        return 0


class SimulatedSupervisor(Supervisor):
    """A supervisor whose children are nodes; `child_app` returns the app of one."""

    child_app: Callable[[Node], AppHost]

    def _new_lease_thread(self) -> LeaseThread:
        return LeaseNode(self._lease_renewer, self._worker, self._host.blocking_storage, ahead=0.0)

    def _new_child(self, config: ChildConfig) -> ChildHandle:
        return SimulatedChild(config, self._received, self._died, self.child_app)

    def _status(self) -> Heartbeat:
        """Return the heartbeat without the memory of the process, which differs from run to run."""
        return replace(super()._status(), memory=0)
