"""The runtime of a simulated worker: the real one, without threads.

A plain handler is called as one step and takes virtual time; the lease thread is a node of the same process.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from penstock.model.source import source
from penstock.model.worker_info import Heartbeat
from penstock.testing.simulation.loop import Node
from penstock.worker.lease_thread import LeaseThread
from penstock.worker.runtime import WorkerRuntime
from penstock.worker.thread_pool import ThreadPool, Thrown

__all__ = ["LeaseNode", "SimulatedRuntime", "Steps", "running_node"]

#: The longest time (seconds) that a plain handler takes which does not sleep.
STEP = 0.2


def running_node() -> Node:
    """Return the node whose callback runs now."""
    node = asyncio.get_running_loop()
    assert isinstance(node, Node)
    return node


class Steps(ThreadPool):
    """Calls plain handlers without threads: the whole call at once, and its outcome after the time that it takes.

    That is the sum of its `time.sleep` calls, which return at once, and a small part that the seed draws.
    """

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function; returns its value, or `Thrown` with its exception."""
        slept: list[float] = []
        real, time.sleep = time.sleep, slept.append
        answer: Any
        try:
            answer = contextvars.copy_context().run(function, *args)
        except BaseException as error:
            answer = Thrown(error)
        finally:
            time.sleep = real
        await asyncio.sleep(sum(slept) + STEP * source.draw())
        return answer


class LeaseNode(LeaseThread):
    """A lease thread as a node: it goes on while a handler blocks the event loop of its worker."""

    def start(self) -> None:
        """Start to look for late leases."""
        node = running_node()
        self._running = True
        self._node = node.scheduler.thread(node, f"leases{len(node.threads)}")
        self._node.start(self._look())

    async def stop(self) -> None:
        """Look no more."""
        self._running = False

    async def _look(self) -> None:
        await asyncio.sleep(self.interval)
        if self._running and await self.renew_late():
            self._node.start(self._look())


class SimulatedRuntime(WorkerRuntime):
    """A worker's runtime without threads."""

    def _new_thread_pool(self) -> ThreadPool:
        return Steps()

    def _new_lease_thread(self) -> LeaseThread:
        return LeaseNode(self._leases, self._worker, self._host.blocking_storage)

    def _status(self) -> Heartbeat:
        """Return the heartbeat without the memory of the process, which differs from run to run."""
        return replace(super()._status(), memory=0)
