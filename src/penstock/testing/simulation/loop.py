"""Event loops of simulated nodes, all in one thread, on virtual time.

A `Node` is the event loop of one process: its callbacks run in the order of asyncio, and its clock is its own. The
`Scheduler` runs one callback at a time, of a node that the seed picks. Virtual time moves when no node can run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import warnings
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any, TypeVar

from penstock.model.source import Source
from penstock.testing.simulation.callback import Callback, end_task
from penstock.testing.simulation.node_source import source_of

__all__ = ["Node", "Scheduler", "StuckError"]

T = TypeVar("T")

#: The virtual time (seconds) that one callback takes, so that code which waits by looking at its clock goes on.
CALLBACK = 2e-6

#: The time of all clocks at the start of a run, in seconds since 1970.
START = 1_700_000_000.0

#: Callbacks without any move of time but theirs, after which a run is given up.
MAX_AT_ONCE = 200_000

_set_running_loop: Callable[[asyncio.AbstractEventLoop | None], None] = vars(asyncio)["_set_running_loop"]


class StuckError(Exception):
    """Raised when the nodes go on for ever without a move of the clock."""


class Node(asyncio.AbstractEventLoop):
    """The event loop of one simulated process, or of one thread of it, with a clock that may be wrong.

    Its monotonic clock starts at `base` and runs `rate` times as fast as virtual time; its wall clock is
    `skew` seconds ahead. A frozen node keeps its callbacks, a killed one drops them.
    """

    def __init__(
        self, scheduler: Scheduler, name: str, *, base: float = 0.0, rate: float = 1.0, skew: float = 0.0
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.base, self.rate, self.skew = base, rate, skew
        self.random = Random(f"{scheduler.seed}/{name}")
        self.ready: deque[Callback] = deque()
        self.dead = False
        #: Whether exceptions of its callbacks end the run: those of the server are mistakes of the simulation.
        self.raises = False
        #: The number of reasons for which it does not run now, and the virtual time at which the last one ended.
        self.frozen = 0
        self.thawed_at = -1e9
        #: The number of its calls by verb, which name them.
        self.calls: Counter[str] = Counter()
        #: The virtual times at which its last request arrives, and at which the last answer comes back.
        self.last_arrival = self.last_answer = 0.0
        #: The main node of the same process: this one, or the one whose thread this is.
        self.main = self
        #: Until when (virtual time) its answers are slow, by how much, and until when none of its calls arrives.
        self.slow_until = self.slow_by = self.cut_until = 0.0
        #: When (virtual time) the requests arrive that it sends before.
        self.held_until = 0.0
        #: The threads of the same process: they freeze and die with it, but do not stop when it is blocked.
        self.threads: list[Node] = []
        #: Its child processes: they die with it.
        self.children: list[Node] = []
        #: Called when it is killed, and at the end of the run.
        self.on_kill: list[Callable[[], object]] = []
        self.at_end: list[Callable[[], object]] = []
        #: The exceptions that no code of the node has handled.
        self.errors: list[str] = []
        #: The tasks and callbacks that it had when it was killed.
        self._kept: set[asyncio.Task[Any]] = set()
        self._dropped: list[Callback] = []

    def __repr__(self) -> str:
        return f"<Node {self.name}>"

    @property
    def pid(self) -> int:
        """The number of the node as the id of its process."""
        return 1 + self.scheduler.nodes.index(self)

    # clocks ---------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the time of the node's monotonic clock."""
        return self.base + self.rate * self.scheduler.now

    def wall(self) -> float:
        """Return the time of the node's wall clock."""
        return START + self.skew + self.scheduler.now

    # callbacks ------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        """Call a function after those that were given before."""
        handle = Callback(0.0, callback, args, contextvars.copy_context() if context is None else context)
        self.scheduler.add(self, handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        """Call a function after this many seconds of the node's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        """Call a function at this time of the node's clock."""
        handle = Callback(when, callback, args, contextvars.copy_context() if context is None else context)
        self.scheduler.add_timer((when - self.base) / self.rate, self, handle)
        return handle

    def call_in(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Call a function after this much virtual time, by no clock of a node."""
        handle = Callback(0.0, callback, args, contextvars.Context())
        self.scheduler.add_timer(self.scheduler.now + seconds, self, handle)

    # tasks ----------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this node."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Return a task of this node that runs a coroutine; on a killed node it never begins."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if self.dead:
            end_task(task)
        return task

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in a task of this node, with an empty context."""
        return self.create_task(coroutine, context=contextvars.Context())

    # freeze and kill ------------------------------------------------------------------------------

    @property
    def process(self) -> list[Node]:
        """This node and the threads of its process."""
        return [self, *self.threads]

    def freeze(self, seconds: float, *, blocked: bool = False) -> None:
        """Stop the process for this much virtual time; with `blocked` only this node, as a handler that never awaits.

        Callbacks that fall due meanwhile run afterwards, in their order.
        """
        for node in [self] if blocked else self.process:
            node.frozen += 1
            self.scheduler.update(node)
            self.scheduler.later(seconds, node.thaw)

    def thaw(self) -> None:
        """Let the node run again, if nothing else keeps it frozen."""
        self.frozen -= 1
        self.thawed_at = self.scheduler.now
        self.scheduler.update(self)

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing of it runs any more, not even a `finally`.

        Its tasks are kept until `discard`: a coroutine that is garbage runs its `finally` blocks.
        """
        for node in self.process:
            node._kept |= asyncio.all_tasks(node)
            node.dead = True
            node._dropped += node.ready
            node.ready.clear()
            self.scheduler.update(node)
        for child in self.children:
            child.kill()
        callbacks, self.on_kill = self.on_kill, []
        for callback in callbacks:
            callback()

    def discard(self) -> None:
        """Close the coroutines that are left at the end of a run; their last steps have no effect."""
        self.kill()
        for node in self.process:
            self.scheduler.enter(node)
            for task in node._kept:
                end_task(task)
            node._kept.clear()
            node._dropped.clear()
        for close in self.at_end:
            close()

    # the rest of an event loop --------------------------------------------------------------------

    def get_debug(self) -> bool:
        """Return False: the debug mode of asyncio measures real time."""
        return False

    def is_running(self) -> bool:
        """Return whether a callback of this node runs now."""
        return self.scheduler.current is self

    def is_closed(self) -> bool:
        """Return whether the node was killed."""
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an exception that no code has handled."""
        error = context.get("exception")
        self.errors.append(context["message"] if error is None else f"{context['message']}: {error!r}")


class Scheduler:
    """Runs the callbacks of all nodes, one at a time, and moves the virtual time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        #: Virtual seconds since the start of the run.
        self.now = 0.0
        self.nodes: list[Node] = []
        #: The node whose callback runs now.
        self.current: Node | None = None
        #: Called with the node before the first callback of another node.
        self.on_switch: Callable[[Node], None] = lambda node: None
        self._draw = Random(f"{seed}/order").random
        self._runnable: list[Node] = []
        self._timers: list[tuple[float, int, Node | None, Callback]] = []
        self._count = 0
        self._at_once = 0

    def node(self, name: str, *, base: float = 0.0, rate: float = 1.0, skew: float = 0.0) -> Node:
        """Add a node; its name must be new."""
        node = Node(self, name, base=base, rate=rate, skew=skew)
        self.nodes.append(node)
        return node

    def thread(self, node: Node, name: str) -> Node:
        """Add a thread to the process of a node, with the same clocks."""
        made = self.node(f"{node.name}:{name}", base=node.base, rate=node.rate, skew=node.skew)
        node.threads.append(made)
        made.main = node
        made.dead = node.dead
        made.frozen = node.frozen
        return made

    def child(self, node: Node) -> Node:
        """Add a child process of a node, on the same machine, so with the same clocks."""
        made = self.node(f"{node.name}.{len(node.children)}", base=node.base, rate=node.rate, skew=node.skew)
        node.children.append(made)
        if node.dead:
            made.kill()
        return made

    # callbacks ------------------------------------------------------------------------------------

    def add(self, node: Node, handle: Callback) -> None:
        """Add a callback to the line of a node; a killed node drops it."""
        if not node.dead:
            node.ready.append(handle)
            if len(node.ready) == 1 and not node.frozen:
                self._runnable.append(node)

    def add_timer(self, at: float, node: Node | None, handle: Callback) -> None:
        """Add a callback at this virtual time; None as its node is the scheduler itself."""
        self._count += 1
        heapq.heappush(self._timers, (max(at, self.now), self._count, node, handle))

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function that belongs to no node after this much virtual time."""
        self.add_timer(self.now + seconds, None, Callback(0.0, function, (), contextvars.Context()))

    def update(self, node: Node) -> None:
        """Note that a node was frozen, thawed or killed."""
        if node in self._runnable:
            self._runnable.remove(node)
        if node.ready and not node.frozen and not node.dead:
            self._runnable.append(node)

    # running --------------------------------------------------------------------------------------

    def run_until(self, done: Callable[[], object], limit: float) -> bool:
        """Run until `done` returns a true value or the virtual time `limit` is reached; returns whether it is done."""
        runnable, draw = self._runnable, self._draw
        try:
            while not done():
                if not runnable:
                    if not self._move_time(limit):
                        return False
                    continue
                at = int(draw() * len(runnable)) if len(runnable) > 1 else 0
                node = runnable[at]
                handle = node.ready.popleft()
                if not node.ready:
                    del runnable[at]
                self.now += CALLBACK
                self._at_once += 1
                if self._at_once > MAX_AT_ONCE:
                    raise StuckError(f"{node.name} and others go on at {self.now:.3f} s without a move of the clock")
                if handle.function is not None:
                    self._run(node, handle)
            return True
        finally:
            self.leave()

    def run_for(self, seconds: float) -> None:
        """Run for this much virtual time."""
        self.run_until(lambda: False, self.now + seconds)

    def _run(self, node: Node, handle: Callback) -> None:
        if self.current is not node:
            self.enter(node)
        try:
            handle.run()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if node.raises:
                raise
            node.call_exception_handler({"message": "exception in a callback", "exception": error})

    def enter(self, node: Node) -> None:
        """Make a node the running one."""
        self.current = node
        _set_running_loop(node)
        self.on_switch(node)

    @contextlib.contextmanager
    def entered(self, node: Node) -> Generator[None]:
        """Make a node the running one inside a `with` block, and then the one before."""
        before = self.current
        self.enter(node)
        try:
            yield
        finally:
            if before is None:
                self.leave()
            else:
                self.enter(before)

    def leave(self) -> None:
        """Make no node the running one."""
        self.current = None
        _set_running_loop(None)

    def _move_time(self, limit: float) -> bool:
        """Move the time to the first timer that is not cancelled, and put all that are due into their lines."""
        timers = self._timers
        while timers and (timers[0][3].function is None or (timers[0][2] is not None and timers[0][2].dead)):
            heapq.heappop(timers)
        if not timers or timers[0][0] > limit:
            self.now = max(self.now, limit)
            return False
        if timers[0][0] > self.now:
            self.now, self._at_once = timers[0][0], 0
        while timers and timers[0][0] <= self.now:
            _, _, node, handle = heapq.heappop(timers)
            if node is not None:
                self.add(node, handle)
            else:
                handle.run()
        return True

    def discard(self) -> None:
        """End all nodes at the end of a run."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that a killed node has not begun
            for node in self.nodes:
                node.discard()
            self._timers.clear()
        self.leave()

    # source ---------------------------------------------------------------------------------------

    def source(self) -> Source:
        """Return the clocks, random numbers and names of the node that runs."""
        return source_of(lambda: self.current)
