"""The runs of a worker: those under way with the units they hold, and those that were claimed ahead."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Protocol

from penstock.model.outcome import Outcome, Released
from penstock.model.source import source
from penstock.worker.run import Interruption, Run, RunFlow
from penstock.worker.task_pool import TaskPool

__all__ = ["Pool"]


#: How long (seconds) an interrupted run may take to end before it is abandoned.
INTERRUPT_GRACE = 1.0

#: How long (seconds) a run that was claimed ahead may wait for units before it is released.
MAX_WAIT_AHEAD = 0.1


class RunExecutor(Protocol):
    """The part that calls handlers, see `Executor`."""

    async def execute(self, run: Run) -> list[Outcome]: ...

    def give_up(self, run: Run) -> list[Outcome]: ...


class Pool:
    """The runs of a worker: those that hold units, and those that wait for units to be free.

    A waiting run was claimed while others ran, because runs of its queue end quickly; it holds no units.
    """

    def __init__(
        self, capacity: int, executor: RunExecutor, flow: RunFlow, least: int = 1, lease: float = math.inf
    ) -> None:
        self.capacity = capacity
        self._lease = lease
        self._least = least
        #: The share of the capacity that may be used: less than 1 while the process cannot keep up.
        self.share = 1.0
        #: The runs under way, in the order in which they got their units.
        self.live: dict[Run, None] = {}
        self.busy = 0
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[Run]] = {}
        #: The number of runs of each queue that have ended so far.
        self.over: dict[str, int] = defaultdict(int)
        self._give_up = executor.give_up
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        #: The offset from the event loop's clock to the monotonic one. Runs begin and end by the latter: the
        #: clock of some event loops stands still during a turn, so it would not show that the process was frozen.
        self._ahead = source.monotonic() - self._loop.time()
        self._tasks = TaskPool(self._begin, executor.execute, self._finish, self.advance)
        self._watched = math.inf
        self._change = asyncio.Event()
        #: Whether a coroutine waits for `_change`.
        self._awaited = False

    @property
    def empty(self) -> bool:
        """Whether no run is under way and none waits."""
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
        """Return how many runs of a handler with `concurrency=n` there may be now."""
        return n if self.share >= 1 else max(1, int(n * self.share))

    def running(self, queue: str) -> int:
        """Return how many runs of a queue hold units."""
        return self._running.get(queue, 0)

    def waiting(self, queue: str) -> int:
        """Return how many runs of a queue wait for units."""
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
        """Return how many runs like this one may begin."""
        n = run.handler.options.concurrency
        room = self.free // run.units if n is None else self.slots(n) - self.running(run.handler.queue)
        return max(room, 0)

    def _enter(self, runs: Sequence[Run]) -> None:
        if runs:
            queue, count = runs[0].handler.queue, len(runs)
            self.live.update(dict.fromkeys(runs))
            self.busy += runs[0].units * count
            self._running[queue] = self._running.get(queue, 0) + count
            self._tasks.add(runs)

    def advance(self) -> None:
        """Begin waiting runs for which units are free, those of each queue in their order."""
        for queue in list(self._waiting):
            line = self._waiting[queue]
            self._enter([line.popleft() for _ in range(min(len(line), self._room(line[0])))])
            if not line:
                del self._waiting[queue]

    def _watch(self, due: float) -> None:
        if due < self._watched:
            self._watched = due
            self._flow.watch(due)

    def release_waiting(self, before: float = math.inf) -> int:
        """Release the runs that have waited since before this time; returns the number of their jobs."""
        count = 0
        for queue in list(self._waiting):
            line = self._waiting[queue]
            while line and line[0].waits_since <= before:
                run = line.popleft()
                count += len(run.jobs)
                self._flow.ended(run, [Released()] * len(run.jobs))
            if not line:
                del self._waiting[queue]
        if count:
            self._change.set()
        return count

    def interrupt(self, run: Run, why: Interruption) -> None:
        """Make a run end; of several reasons the first one counts."""
        if run.interruption is not None:
            return
        line = self._waiting.get(run.handler.queue, ())
        if run in line:
            run.interruption = why
            self._forget(run)
            self._flow.ended(run, self._give_up(run))
            return
        if run not in self.live:
            return
        run.interruption = why
        if run.task is None:
            return  # the task pool has not begun it: it ends as soon as it begins
        if self._flow.replaceable and not run.handler.signature.is_async:
            # A thread cannot be cancelled. After a kill request its handler has the grace to notice that.
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
        """Interrupt runs past their deadline, abandon those that do not end; returns when to look again."""
        for run in list(self.live):
            if run.deadline is not None and run.deadline <= now:
                if run.interruption is None:
                    self.interrupt(run, Interruption.TIMEOUT)
                else:
                    self._abandon(run)
        self.release_waiting(now - MAX_WAIT_AHEAD)
        due = min((run.deadline for run in self.live if run.deadline is not None), default=math.inf)
        self._watched = min(due, *(line[0].waits_since + MAX_WAIT_AHEAD for line in self._waiting.values()), math.inf)
        return self._watched

    def _abandon(self, run: Run) -> None:
        """Give up a run that does not end: its process is replaced, or its outcome is that of the interruption."""
        run.deadline = None
        if self._flow.replaceable:
            self._flow.stuck(run)
        else:
            self._finish(run, self._give_up(run))
            self.advance()

    async def wait_empty(self) -> None:
        """Return when no run is under way and none waits."""
        while not self.empty:
            await self._changed()

    async def wait_gone(self, runs: Sequence[Run]) -> None:
        """Return when none of these runs is under way."""
        while any(run in self.live for run in runs):
            await self._changed()

    def close(self) -> None:
        """Let idle tasks end: no run will be started any more."""
        self._tasks.close()

    async def _changed(self) -> None:
        self._awaited = True
        self._change.clear()
        await self._change.wait()

    def _begin(self, run: Run) -> bool:
        """Note that a run begins; False if it was interrupted before or a lease of it may be over, which ends it."""
        now = source.monotonic() - self._ahead
        if run.interruption is None and (len(run.jobs) > 1 or now >= run.jobs[0].confirmed + self._lease):
            self._flow.fence(run, now)
        if run.interruption is not None:
            self._finish(run, self._give_up(run))
            return False
        run.began = now
        if run.timeout is not None:
            run.deadline = due = now + run.timeout
            if due < self._watched:
                self._watch(due)
        self._flow.started(run)
        return True

    def _finish(self, run: Run, outcomes: list[Outcome]) -> None:
        if run not in self.live:
            return
        queue = run.handler.queue
        if run.began:
            run.took = source.monotonic() - self._ahead - run.began
        del self.live[run]
        self.busy -= run.units
        self._running[queue] -= 1
        self.over[queue] += 1
        if self._awaited:
            self._change.set()
        self._flow.ended(run, outcomes)
