"""The network of a simulated run: storage verbs as messages between nodes and one server.

A request is sent at once and carried out in the server's turn, during which no clock moves. It lives on the
server's side, so it is carried out even if its caller is frozen or dead. Requests of a node arrive in their order, and
so do the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import QueueFull, StorageError, StorageUnavailable
from penstock.testing.simulation.faults import Fault, Faults, draws
from penstock.testing.simulation.history import History
from penstock.testing.simulation.loop import Node, Scheduler

__all__ = ["Network", "Request"]

#: The shortest time of a message, and the part that is drawn (seconds).
LATENCY, JITTER = 0.0002, 0.002

#: How long (seconds) it takes until a caller sees that its connection was reset.
RESET = 0.01


@dataclass(slots=True)
class Request:
    """A call under way: the node that waits for it, its verb and arguments, and the function that carries it out."""

    node: Node
    verb: str
    name: str
    args: tuple[Any, ...]
    execute: Callable[[], Any]
    answer: asyncio.Future[Any]
    reply_latency: float
    fault: Fault | None = None
    #: Whether the answer of this execution is sent to the caller.
    answered: bool = True
    #: The virtual time at which the caller sent it.
    sent: float = field(default=0.0)


class Network:
    """Carries calls to the server and answers and hints back, with the faults of the run."""

    def __init__(self, scheduler: Scheduler, faults: Faults, history: History) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._history = history
        #: The server as a node: a frozen one carries out nothing, and requests pile up.
        self.server = scheduler.node("server")
        self.server.raises = True
        #: Called with each request before it is carried out.
        self.on_request: list[Callable[[Request], None]] = []
        #: Called with each request after it was carried out, and with its answer or exception.
        self.observers: list[Callable[[Request, Any], None]] = []
        #: Returns the error of a request that the storage refuses, None for all others.
        self.refuses: Callable[[Request], Exception | None] = lambda request: None
        #: Sets the storage's clock ahead by these seconds, or back if they are negative.
        self.move_clock: Callable[[float], object] = lambda seconds: None
        #: By how many seconds the storage's clock is ahead while calls of a node are carried out, by the node's name.
        self.clocks: dict[str, Callable[[], float]] = {}
        #: Whether all hints are lost.
        self.loses_hints = False
        #: The number of calls that were carried out.
        self.executed = 0

    # calls ----------------------------------------------------------------------------------------

    def call(self, node: Node, verb: str, args: tuple[Any, ...], execute: Callable[[], Any]) -> asyncio.Future[Any]:
        """Send a call to the server; returns the future of its answer."""
        node.calls[verb] += 1
        name = f"{node.name}/{verb}/{node.calls[verb]}"
        drawn = draws(self._faults.seed, name)
        future = node.create_future()
        if node.dead:
            return future
        fault = self._faults.of_call(node.name, verb, name, drawn)
        request = Request(node, verb, name, args, execute, future, LATENCY + JITTER * drawn[1], fault)
        request.sent = self._scheduler.now
        if fault is not None:
            self._history.add(node.name, "fault", f"{name} {fault.kind}")
        if self._refused(request) or self._cut(request, drawn[3]):
            return future
        if fault is None or fault.kind not in ("lost_request", "late"):
            self._send(request, LATENCY + JITTER * drawn[0])
            return future
        seconds = self._time_to_error(fault)
        node.call_in(seconds, _fail, future, f"{verb}: no answer", True)
        if fault.kind == "late":
            request.answered = False
            self._send(request, seconds + 4 * fault.choice)
        return future

    def _refused(self, request: Request) -> bool:
        """Refuse a call at once if the server cannot be reached, or has no room for it."""
        faults = self._faults
        why = ""
        if request.fault is not None and request.fault.kind == "unavailable":
            why = "connection refused"
        elif request.node.name not in faults.spared:
            if faults.outages:
                why = "the server is away"
            elif faults.full and request.verb in ("put", "fire", "set_schedule"):
                why = "the server is full"
        if why:
            request.node.call_in(RESET / 10, _fail, request.answer, f"{request.verb}: {why}", False)
        return bool(why)

    def _cut(self, request: Request, drawn: float) -> bool:
        """Lose a call of a node that is cut off."""
        main = request.node.main
        if not main.slow_until < self._scheduler.now < main.cut_until:
            return False
        request.node.call_in(RESET + drawn, _fail, request.answer, f"{request.verb}: no answer", True)
        return True

    def _send(self, request: Request, latency: float) -> None:
        node, fault, now = request.node, request.fault, self._scheduler.now
        if fault is not None and fault.kind == "slow_request":
            latency += 12 * fault.size
        at = max(now + latency, node.main.held_until)
        if fault is not None and fault.kind == "reordered":
            at += 0.5 * fault.size
        elif request.answered:
            at = node.last_arrival = max(at, node.last_arrival)
        self.server.call_in(at - now, self._execute, request)

    def _execute(self, request: Request) -> None:
        """Carry a request out, in the server's turn."""
        fault = request.fault
        refused = self.refuses(request)
        ahead = 4 * fault.size if fault is not None and fault.kind == "clock_ahead" else 0.0
        if request.node.name in self.clocks:
            ahead = self.clocks[request.node.name]()
        self.move_clock(ahead)
        answer = self._carry_out(request) if refused is None else refused
        self.move_clock(-ahead)
        if fault is not None and fault.kind == "doubled" and not fault.name.endswith("+"):
            request.fault = fault._replace(name=f"{fault.name}+")
            self.server.call_in(0.01 + 3 * fault.size, self._execute, request)
        elif request.answered:
            self._reply(request, answer)

    def _carry_out(self, request: Request) -> Any:
        self.executed += 1
        for prepare in self.on_request:
            prepare(request)
        try:
            answer = request.execute()
        except (StorageError, QueueFull, ValueError, TypeError) as error:
            answer = error
        self._history.call(request, answer)
        for observer in self.observers:
            observer(request, answer)
        return answer

    def _reply(self, request: Request, answer: Any) -> None:
        node, fault, now = request.node, request.fault, self._scheduler.now
        if fault is not None and fault.kind == "lost_reply":
            node.call_in(self._time_to_error(fault), _fail, request.answer, f"{request.verb}: no answer", True)
            return
        latency = request.reply_latency
        if now < node.main.slow_until:
            latency += node.main.slow_by
        if fault is not None and fault.kind == "slow_reply":
            latency += 15 * fault.size
        node.last_answer = max(now + latency, node.last_answer)
        node.call_in(node.last_answer - now, _answer, request.answer, answer)

    def _time_to_error(self, fault: Fault) -> float:
        """Return how long a caller waits until it gets an error: a reset in half of the cases, else seconds."""
        return RESET if fault.size < 0.5 else 1 + 12 * (fault.size - 0.5)

    # hints ----------------------------------------------------------------------------------------

    def hint(self, node: Node, deliver: Callable[[], object]) -> None:
        """Send a hint of the server to a node, which calls `deliver`."""
        node.calls["hint"] += 1
        if self.loses_hints:
            return
        name = f"{node.name}/hint/{node.calls['hint']}"
        drawn = draws(self._faults.seed, name)
        fault = self._faults.of_hint(node.name, name, drawn)
        latency = LATENCY + JITTER * drawn[0]
        if fault is not None:
            self._history.add(node.name, "fault", f"{name} {fault.kind}")
            if fault.kind == "hint_lost":
                return
            if fault.kind == "hint_twice":
                node.call_in(latency + fault.size, deliver)
            else:
                latency += 10 * fault.size
        node.call_in(latency, deliver)


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], why: str, uncertain: bool) -> None:
    error = StorageUnavailable(why)
    error.uncertain = uncertain
    _answer(future, error)
