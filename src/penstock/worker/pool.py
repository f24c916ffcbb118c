"""The runs that are alive, the units they hold, and those that were claimed ahead."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence

from penstock.model.outcome import Outcome, Released
from penstock.worker.run import Interruption, Run
from penstock.worker.task_pool import TaskPool

__all__ = ["Pool"]


#: How long an interrupted run may take to end before it goes on unheard (seconds).
INTERRUPT_GRACE = 1.0

#: How long a run that was claimed ahead may wait for its turn before it is given back (seconds).
MAX_WAIT_AHEAD = 0.1


class Pool:
    """The runs of a worker: those that hold units, and those that wait for units to free.

    A run that waits was claimed while others ran, because so many end in no time; it holds nothing.
    """

    def __init__(
        self,
        capacity: int,
        execute: Callable[[Run], Awaitable[list[Outcome]]],
        give_up: Callable[[Run], list[Outcome]],
        ended: Callable[[Run, list[Outcome]], None],
        least: int = 1,
    ) -> None:
        self.capacity = capacity
        self._least = least
        #: The share of the capacity that may be used; less than all while the process cannot keep up.
        self.share = 1.0
        self.live: set[Run] = set()
        self.busy = 0
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[Run]] = {}
        #: How many runs of each queue have ended so far.
        self.over: dict[str, int] = defaultdict(int)
        self._give_up = give_up
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskPool(self._begin, execute, self._finish, self.advance)
        self._watched = math.inf
        self._change = asyncio.Event()
        #: Whether anybody waits for runs to end.
        self._awaited = False
        #: Called with a run that begins.
        self.began: Callable[[Run], None] = lambda _: None
        #: Called with a time by which `sweep` must be called.
        self.watch: Callable[[float], None] = lambda _: None
        #: In a process that may be killed: called with a run that cannot be made to end otherwise.
        self.escalate: Callable[[Run], None] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.live and not self._waiting

    @property
    def allowed(self) -> int:
        """The units that may be in use now: never fewer than the largest run needs, so that no queue starves."""
        return self.capacity if self.share >= 1 else max(self._least, int(self.capacity * self.share))

    @property
    def free(self) -> int:
        """The units that may be claimed for; below zero when less is allowed than is in use."""
        return self.allowed - self.busy

    def slots(self, n: int) -> int:
        """How many runs of a handler with `concurrency=n` there may be now."""
        return n if self.share >= 1 else max(1, int(n * self.share))

    def running(self, queue: str) -> int:
        """How many runs of a queue hold units."""
        return self._running.get(queue, 0)

    def waiting(self, queue: str) -> int:
        """How many runs of a queue wait for units."""
        return len(self._waiting.get(queue, ()))

    def start(self, runs: Sequence[Run]) -> None:
        """Begin runs of one queue, now or as soon as there is room for them."""
        queue = runs[0].handler.queue
        fits = 0 if queue in self._waiting else self._room(runs[0])
        self._enter(runs if fits >= len(runs) else runs[:fits])
        if fits < len(runs):
            now = self._loop.time()
            for run in runs[fits:]:
                run.waits_since = now
            self._waiting.setdefault(queue, deque()).extend(runs[fits:])
            self._watch(now + MAX_WAIT_AHEAD)

    def _room(self, run: Run) -> int:
        """How many runs like this one may begin."""
        n = run.handler.options.concurrency
        room = self.free // run.units if n is None else self.slots(n) - self.running(run.handler.queue)
        return max(room, 0)

    def _enter(self, runs: Sequence[Run]) -> None:
        if runs:
            queue, count = runs[0].handler.queue, len(runs)
            self.live.update(runs)
            self.busy += runs[0].units * count
            self._running[queue] = self._running.get(queue, 0) + count
            self._tasks.add(runs)

    def advance(self) -> None:
        """Units may have freed: those that wait for them enter, those of each queue in their order."""
        for queue in list(self._waiting):
            line = self._waiting[queue]
            self._enter([line.popleft() for _ in range(min(len(line), self._room(line[0])))])
            if not line:
                del self._waiting[queue]

    def _watch(self, due: float) -> None:
        if due < self._watched:
            self._watched = due
            self.watch(due)

    def give_back(self, before: float = math.inf) -> int:
        """Give back what has waited since before this time; gives how many jobs that were."""
        count = 0
        for queue in list(self._waiting):
            line = self._waiting[queue]
            while line and line[0].waits_since <= before:
                run = line.popleft()
                count += len(run.jobs)
                self._ended(run, [Released()] * len(run.jobs))
            if not line:
                del self._waiting[queue]
        if count:
            self._change.set()
        return count

    def interrupt(self, run: Run, why: Interruption) -> None:
        """Make a run end; the first reason stands."""
        if run.interruption is not None:
            return
        line = self._waiting.get(run.handler.queue, ())
        if run in line:
            run.interruption = why
            self._forget(run)
            self._ended(run, self._give_up(run))
            return
        if run not in self.live:
            return
        run.interruption = why
        if run.task is None:
            return  # it is in line: it ends as soon as it begins
        if self.escalate is not None and not run.handler.signature.is_async:
            # A thread cannot be cancelled, but it may look whether somebody wants it to end.
            if why is not Interruption.KILL:
                self._abandon(run)
                return
        else:
            run.task.cancel()
        run.deadline = self._loop.time() + INTERRUPT_GRACE
        self._watch(run.deadline)

    def _forget(self, run: Run) -> None:
        line = self._waiting[run.handler.queue]
        line.remove(run)
        if not line:
            del self._waiting[run.handler.queue]
        self._change.set()

    def sweep(self, now: float) -> float:
        """Interrupt what is over its time, abandon what does not end; gives when to look again."""
        for run in list(self.live):
            if run.deadline is not None and run.deadline <= now:
                if run.interruption is None:
                    self.interrupt(run, Interruption.TIMEOUT)
                else:
                    self._abandon(run)
        self.give_back(now - MAX_WAIT_AHEAD)
        due = min((run.deadline for run in self.live if run.deadline is not None), default=math.inf)
        self._watched = min(due, *(line[0].waits_since + MAX_WAIT_AHEAD for line in self._waiting.values()), math.inf)
        return self._watched

    def _abandon(self, run: Run) -> None:
        """A run will not end: it costs the process, or it is reported and whatever it still does is not heard."""
        run.deadline = None
        if self.escalate is not None:
            self.escalate(run)
        else:
            self._finish(run, self._give_up(run))
            self.advance()

    async def wait_empty(self) -> None:
        """Return when nothing runs and nothing waits."""
        while not self.empty:
            await self._changed()

    async def wait_gone(self, runs: Sequence[Run]) -> None:
        while any(run in self.live for run in runs):
            await self._changed()

    def close(self) -> None:
        """Nothing will be started any more."""
        self._tasks.close()

    async def _changed(self) -> None:
        self._awaited = True
        self._change.clear()
        await self._change.wait()

    def _begin(self, run: Run) -> bool:
        """Whether the run goes on: one that was interrupted while it was in line is over."""
        if run.interruption is not None:
            self._finish(run, self._give_up(run))
            return False
        run.began = now = self._loop.time()
        if run.timeout is not None:
            run.deadline = due = now + run.timeout
            if due < self._watched:
                self._watch(due)
        self.began(run)
        return True

    def _finish(self, run: Run, outcomes: list[Outcome]) -> None:
        if run not in self.live:
            return
        queue = run.handler.queue
        self.live.discard(run)
        self.busy -= run.units
        self._running[queue] -= 1
        self.over[queue] += 1
        if self._awaited:
            self._change.set()
        self._ended(run, outcomes)
