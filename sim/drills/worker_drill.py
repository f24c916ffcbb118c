"""Drills of a worker: what its handlers raise, tasks that are used again, and leases that end in several ways."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import Entry, Job
from penstock.model.job import FINISHED
from penstock.storage.base import Release, Settlement
from penstock.testing.simulation.loop import Node
from sim.behaviours import Unspeakable
from sim.drills.drill import STEP, Drill, DrillWorker
from sim.queues import NodeApp

__all__ = ["WorkerDrill"]

SINGLE, PAIRS = "drill/run", "drill/run/pairs"

#: The units of the worker, and of each run.
UNITS, SIZE = 40, 10

#: The lease of the worker (seconds), which renews after a third of it.
LEASE = 2.0

#: How often a batch is put until it is in line behind one that blocks: another claim may answer first.
TRIES = 4

#: How long (seconds) a run may take in these drills.
SOON = 8.0


class WorkerDrill(Drill):
    """One worker with a short lease, whose process is slow, cut off, blocked and frozen in turn."""

    #: The jobs of the batches that have begun.
    _begun: tuple[str, ...] = ()
    #: The units of its runs.
    _units = 0

    async def run(self) -> None:
        """Make each situation once."""
        await self.begin()
        worker = self.worker("drill.run", self._register, capacity=UNITS, lease=LEASE)
        await self._raise_odd()
        await self._cancel_tasks()
        await self._fill()
        await self._refuse_outcomes()
        await self._answer_late(worker)
        await self._cut_off(worker)
        await self._freeze(worker)
        await self._lose_one_of_two(worker)
        await self._ended(SINGLE, PAIRS)
        await worker.stop()

    # handlers -------------------------------------------------------------------------------------

    def _register(self, app: NodeApp, node: Node) -> None:
        async def one(payload: Any, job: Job) -> None:
            await self._run(node, [job], payload if job.attempt == 1 else "ok")

        async def many(payloads: list[Any], jobs: list[Job]) -> None:
            self._begun += tuple(job.id for job in jobs)
            await self._run(node, jobs, payloads[0] if jobs[0].attempt == 1 else "ok")

        options: Any = {"max_retries": 0, "max_stalls": 9, "result_ttl": 0}
        app.listen(SINGLE, one, size=SIZE, **options)
        app.listen(PAIRS, many, size=SIZE, batch_size=2, **options)

    async def _run(self, node: Node, jobs: list[Job], do: str) -> None:
        number = self.shared.runs.began(node, jobs, f"drill {do}")
        self._units += SIZE
        self.expect(self._units <= UNITS, f"a worker uses {self._units} units of {UNITS}")
        try:
            match do:
                case "unspeakable":
                    raise Unspeakable("drill")
                case "base":
                    raise BaseException("drill")
                case "cancel itself":
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    await asyncio.sleep(1)
                case "slow":
                    await asyncio.sleep(0.3)
                case "hold":
                    await asyncio.sleep(60)
                case "block":
                    node.freeze(1.3 * LEASE, blocked=True)
                    await asyncio.sleep(0)
                case "freeze":
                    node.freeze(1.6 * LEASE)
                    await asyncio.sleep(0)
                case _:
                    await asyncio.sleep(0.01)
        finally:
            self._units -= SIZE
            self.shared.runs.ended(number)

    # situations -----------------------------------------------------------------------------------

    async def _ended(self, *queues: str) -> None:
        """Wait until all jobs of queues have ended."""

        async def nothing_left() -> bool:
            counts = [await self.storage.counts(queue) for queue in queues]
            return not any(count for each in counts for state, count in each.items() if state not in FINISHED)

        self.expect(await self.until(nothing_left, SOON), f"jobs of {', '.join(queues)} do not end")

    async def _raise_odd(self) -> None:
        """Raise what `except Exception` does not catch, in the handler and in the text of its exception."""
        await self.app.queue(SINGLE).enqueue_many([Entry("unspeakable"), Entry("base")])
        await self._ended(SINGLE)

    async def _cancel_tasks(self) -> None:
        """Cancel the tasks of runs, and run others afterwards."""
        for _ in range(2):
            await self.app.queue(SINGLE).enqueue_many([Entry("cancel itself"), Entry("ok"), Entry("ok")])
            await self._ended(SINGLE)

    async def _started(self, queue: str) -> None:
        async def running() -> bool:
            return any(key[0] == queue for key in self.shared.running())

        self.expect(await self.until(running, SOON), f"no job of {queue} starts")

    async def _fill(self) -> None:
        """Put more jobs than the worker has units for."""
        await self.app.queue(SINGLE).enqueue_many([Entry("slow") for _ in range(3 * UNITS // SIZE)])
        await self._ended(SINGLE)

    async def _refuse_outcomes(self) -> None:
        """Refuse the outcomes of a run for a while: they are sent again."""
        with self.refusing("drill.run", "settle"):
            await self.app.queue(SINGLE).enqueue("ok")
            await self._started(SINGLE)
            await asyncio.sleep(1.0)
        await self._ended(SINGLE)

    async def _answer_late(self, worker: DrillWorker) -> None:
        """Have a claim answered after its lease: its job is run by a later one."""
        node = worker.node
        node.slow_by, node.slow_until = 1.5 * LEASE, self.node.scheduler.now + 1.0
        await self.app.queue(SINGLE).enqueue("ok")
        until = self.node.scheduler.now + 2 * LEASE
        while self.node.scheduler.now < until:
            await self.storage.reap([SINGLE])
            await asyncio.sleep(STEP)
        node.slow_until = 0.0
        await self._ended(SINGLE)

    async def _cut_off(self, worker: DrillWorker) -> None:
        """Have the last renewal of a run answered late, and no further one: the run ends with its lease."""
        await self.app.queue(SINGLE).enqueue("hold")
        await self._started(SINGLE)
        node, now = worker.node, self.node.scheduler.now
        node.slow_by, node.slow_until = LEASE / 2, now + LEASE
        node.cut_until = node.slow_until + 2.5 * LEASE
        while self.node.scheduler.now < node.cut_until:
            await self.storage.reap([SINGLE])
            await asyncio.sleep(STEP / 2)
        node.slow_until = node.cut_until = 0.0
        await self._ended(SINGLE)

    async def _freeze(self, worker: DrillWorker) -> None:
        """Freeze the process in the first of several runs past their lease: those in line do not begin."""
        await self.app.queue(SINGLE).enqueue_many([Entry("freeze"), Entry("ok"), Entry("ok")])
        await self._started(SINGLE)
        while worker.node.frozen:
            await self.storage.reap([SINGLE])
            await asyncio.sleep(STEP)
        await self._ended(SINGLE)

    async def _lose_one_of_two(self, worker: DrillWorker) -> None:
        """Block the process while a batch is in line of which one claim ends, and the other one is renewed."""
        for _ in range(TRIES):
            ids = [self.new_id() for _ in range(4)]
            await self.storage.put([self.job(PAIRS, id, b'"ok"' if n else b'"block"') for n, id in enumerate(ids)])
            await self._started(PAIRS)
            tokens = [self.shared.running().get((PAIRS, id)) for id in ids]
            in_line = worker.node.frozen > 0 and ids[3] not in self._begun and None not in tokens
            if in_line:
                await self.storage.settle([Settlement(PAIRS, ids[3], tokens[3] or "", Release())])
            while worker.node.frozen:  # noqa: ASYNC110
                await asyncio.sleep(STEP)
            await self._ended(PAIRS)
            if in_line:
                return
