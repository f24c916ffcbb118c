"""One simulated run: its nodes, network, storage, faults and history, and the fates of nodes and server."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Generator
from typing import Any, cast

from penstock.model.ids import drop_unused
from penstock.model.source import replaced_source
from penstock.storage.base import Storage
from penstock.testing.simulation.faults import Fault, Faults, draws
from penstock.testing.simulation.history import History
from penstock.testing.simulation.loop import Node, Scheduler
from penstock.testing.simulation.network import Network
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.storages import NodeStorage, start_server

__all__ = ["Machine", "Simulation"]


class Machine:
    """A process that faults may freeze, kill and restart: `start` begins it on a new node each time."""

    def __init__(self, name: str, start: Callable[[Node], Any], stop: Callable[[Node], Any] | None = None) -> None:
        self.name = name
        #: Starts the program on a node, as a coroutine function.
        self.start = start
        #: Stops it in an orderly way, as a coroutine function; None if it can only be killed.
        self.stop = stop
        self.node: Node | None = None
        self.starts = 0


class Simulation:
    """The parts of one run. Use it as a context manager: inside, all clocks and random numbers are simulated."""

    def __init__(self, plan: Plan, url: str = "memory:", namespace: str = "penstock") -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed)
        self.history = History(lambda: self.scheduler.now)
        self.faults = Faults(plan.seed, plan.kinds, plan.heat, lambda: self.scheduler.now, plan.only)
        self.network = Network(self.scheduler, self.faults, self.history)
        self.faults.spared.add("server")
        self.machines: list[Machine] = []
        #: The queues that faults may pause.
        self.queues: list[str] = []
        #: The storages of the nodes, by the name of the node.
        self._storages: dict[str, NodeStorage] = {}
        self._url, self._namespace = url, namespace
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Simulation:
        self._stack.enter_context(replaced_source(self.scheduler.source()))
        self._stack.enter_context(_without_garbage_collection())
        self._stack.enter_context(_logs_in(self.history, self.scheduler))
        drop_unused()
        self._stack.callback(drop_unused)
        self.scheduler.enter(self.network.server)
        blocking_put = draws(self.plan.seed, "put")[0] < 0.5
        self.server = start_server(self._url, self.scheduler, self.network, self._namespace, blocking_put=blocking_put)
        self.network.move_clock = self._jump
        return self

    def __exit__(self, *details: object) -> None:
        try:
            self.scheduler.discard()
            self.scheduler.enter(self.network.server)
            self.server.close()
            self.scheduler.leave()
        finally:
            self._stack.close()

    # nodes ----------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """Add a node, whose clocks may be wrong from the start."""
        base, rate, skew, *_ = draws(self.plan.seed, f"clock/{name}")
        drift, wrong = self.faults.allowed(f"drift/{name}", "drift"), self.faults.allowed(f"skew/{name}", "skew")
        return self.scheduler.node(
            name,
            base=10_000 * base,
            rate=1 + 0.04 * (rate - 0.5) if drift else 1.0,
            skew=7200 * (skew - 0.5) if wrong else 0.0,
        )

    def storage(self, node: Node) -> Storage:
        """Return a new storage for a node."""
        storage = self._storages[node.name] = NodeStorage(node, self.network, self.server)
        return cast("Storage", storage)  # its verbs are made on demand

    def add(self, machine: Machine) -> Machine:
        """Start a process that faults may hit."""
        self.machines.append(machine)
        self.start(machine)
        return machine

    def start(self, machine: Machine) -> None:
        """Start a process on a new node."""
        machine.node = self.node(f"{machine.name}.{machine.starts}")
        machine.starts += 1
        self.history.add(machine.node.name, "start", "")
        with self.scheduler.entered(machine.node):  # a timer may start it while no node runs
            started = machine.start(machine.node)
        machine.node.start(started)

    # faults ---------------------------------------------------------------------------------------

    def schedule_faults(self) -> None:
        """Have the faults of nodes and server happen at their times."""
        for fault in self.faults.of_surroundings(self.plan.seconds):
            self.scheduler.later(fault.at - self.scheduler.now, lambda fault=fault: self.begin(fault))

    def heal(self) -> None:
        """Let no new fault happen. A process that is cut off is not any more; other faults end by themselves."""
        self.faults.heal()
        for node in self.scheduler.nodes:
            node.slow_until = node.cut_until = 0.0
        self.history.add("env", "heal", "")

    def begin(self, fault: Fault) -> None:
        """Have a fault of nodes or the server happen now."""
        happen = getattr(self, f"_{fault.kind}")
        about = happen(fault)
        if about is not None:
            self.faults.record(fault)
            self.history.add("env", "fault", f"{fault.name} {about}")

    def _target(self, fault: Fault) -> Machine | None:
        """Return the process that a fault hits, if it is alive."""
        if not self.machines:
            return None
        machine = self.machines[int(fault.choice * len(self.machines))]
        return None if machine.node is None or machine.node.dead else machine

    def _process(self, fault: Fault) -> Node | None:
        """Return the node of the process that a fault hits: of a worker with children, one of all of them."""
        machine = self._target(fault)
        if machine is None or machine.node is None:
            return None
        nodes = [machine.node, *(child for child in machine.node.children if not child.dead)]
        return nodes[int(draws(self.plan.seed, fault.name)[5] * len(nodes))]

    def _outage(self, fault: Fault) -> str:
        self.faults.outages += 1
        self.scheduler.later(10 * fault.size, self._end_outage)
        return f"for {10 * fault.size:.3f} s"

    def _end_outage(self) -> None:
        self.faults.outages -= 1

    def _full(self, fault: Fault) -> str:
        self.faults.full += 1
        self.scheduler.later(10 * fault.size, self._end_full)
        return f"for {10 * fault.size:.3f} s"

    def _end_full(self) -> None:
        self.faults.full -= 1

    def _server_stall(self, fault: Fault) -> str:
        self.network.server.freeze(14 * fault.size)
        return f"for {14 * fault.size:.3f} s"

    def _freeze(self, fault: Fault, *, blocked: bool = False) -> str | None:
        node = self._process(fault)
        if node is None:
            return None
        seconds = 2.5 * self.plan.lease * fault.size
        node.freeze(seconds, blocked=blocked)
        return f"{node.name} for {seconds:.3f} s"

    def _block(self, fault: Fault) -> str | None:
        return self._freeze(fault, blocked=True)

    def _partition(self, fault: Fault) -> str | None:
        node, lease, now = self._process(fault), self.plan.lease, self.scheduler.now
        if node is None:
            return None
        node.slow_by, node.slow_until = 0.9 * fault.size * lease, now + lease
        node.cut_until = node.slow_until + 2.5 * fault.size * lease
        return (
            f"{node.name}: slow by {node.slow_by:.3f} s until {node.slow_until:.3f}, cut off until {node.cut_until:.3f}"
        )

    def _backlog(self, fault: Fault) -> str | None:
        node = self._process(fault)
        if node is None:
            return None
        seconds = 2.5 * self.plan.lease * fault.size
        node.held_until = self.scheduler.now + seconds
        return f"{node.name} for {seconds:.3f} s"

    def _kill(self, fault: Fault) -> str | None:
        machine, node = self._target(fault), self._process(fault)
        if machine is None or node is None:
            return None
        node.kill()
        if node is not machine.node:  # its parent starts another
            return f"{node.name}, a child"
        self.scheduler.later(8 * fault.size, lambda: self.start(machine))
        return f"{node.name}, started again after {8 * fault.size:.3f} s"

    def _restart(self, fault: Fault) -> str | None:
        machine = self._target(fault)
        if machine is None or machine.node is None or machine.stop is None:
            return None
        node, stop = machine.node, machine.stop

        async def stop_and_start() -> None:
            await stop(node)
            self.history.add(node.name, "stopped", "")
            if not node.dead and machine.node is node:
                self.start(machine)

        node.start(stop_and_start())
        return node.name

    def _clock_jump(self, fault: Fault) -> str | None:
        machine = self._target(fault)
        if machine is None or machine.node is None:
            return None
        machine.node.skew = 7200 * (fault.size - 0.5)
        return f"{machine.node.name} to {machine.node.skew:.3f} s"

    def _jump(self, seconds: float) -> str:
        self.server.clock.offset += seconds
        return f"by {seconds:g} s"

    def _jump_forward(self, fault: Fault) -> str:
        return self._jump(12 * fault.size)

    def _jump_back(self, fault: Fault) -> str:
        return self._jump(-8 * fault.size)

    def _long_jump(self, fault: Fault) -> str:
        return self._jump(1800 * fault.size)

    def _spurious(self, fault: Fault) -> str | None:
        machine = self._target(fault)
        if machine is None or machine.node is None or machine.node.name not in self._storages:
            return None
        machine.node.call_soon(self._storages[machine.node.name].waits.wake_all)
        return machine.node.name

    def _pause(self, fault: Fault) -> str | None:
        if not self.queues:
            return None
        queue = self.queues[int(fault.choice * len(self.queues))]
        self._set_pause(queue, True)
        self.scheduler.later(10 * fault.size, lambda: self._set_pause(queue, False))
        return f"{queue} for {10 * fault.size:.3f} s"

    def _set_pause(self, queue: str, paused: bool) -> None:
        """Pause or resume a queue as an operator does whose calls always arrive."""
        network = self.network
        execute = lambda: self.server.execute(network.server, "set_pause", (queue, paused))  # noqa: E731
        network.call(network.server, "set_pause", (queue, paused), execute)


class _HistoryHandler(logging.Handler):
    """Writes log records into the history, at the node that logs."""

    def __init__(self, history: History, scheduler: Scheduler) -> None:
        super().__init__(logging.WARNING)
        self._history = history
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        node = self._scheduler.current
        self._history.add("" if node is None else node.name, "log", record.getMessage())


@contextlib.contextmanager
def _logs_in(history: History, scheduler: Scheduler) -> Generator[None]:
    """Write the log of Penstock into the history instead of the program's log: its times are virtual.

    Warnings are written whatever the program logs, so that the history depends on the seed alone.
    """
    logger, handler = logging.getLogger("penstock"), _HistoryHandler(history, scheduler)
    before, disabled = (logger.propagate, logger.level), logging.root.manager.disable
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        logging.disable(disabled)
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])


@contextlib.contextmanager
def _without_garbage_collection() -> Generator[None]:
    """Collect no garbage in the block: collections come by the number of allocations, and end weak references."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
