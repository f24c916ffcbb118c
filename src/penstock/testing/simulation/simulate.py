"""`simulate`: an app's own handlers under seeded faults, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock.client.app import Penstock
from penstock.errors import StorageError
from penstock.model.job import FINISHED, State
from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.history import Line
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Machine, Simulation
from penstock.testing.simulation.workers import SimulatedWorker

__all__ = ["SimulationReport", "simulate"]

#: How long (virtual seconds) jobs may take to end after the last fault, and stopping workers after that.
LIMIT, STOP_LIMIT = 3600.0, 120.0

#: The node of the scenario. Its calls have no faults.
SCENARIO = "scenario"


@dataclass(frozen=True)
class SimulationReport:
    """A run that has ended: its faults and its history. Two runs with one digest were the same, step by step."""

    seed: int
    #: The virtual time that passed (seconds).
    seconds: float
    faults: list[Fault]
    history: list[Line]
    digest: str
    #: The number of jobs in each state at the end, by queue.
    counts: dict[str, dict[State, int]]

    def __str__(self) -> str:
        return "\n".join(map(str, self.history))


def simulate(
    app: Penstock,
    scenario: Callable[[], Awaitable[object]],
    *,
    seed: int = 0,
    faults: Iterable[str] | None = None,
    workers: int = 2,
    lease: float | None = None,
    capacity: int = 100,
    seconds: float = 60.0,
    limit: float = LIMIT,
) -> SimulationReport:
    """Run the jobs of a scenario by real workers of an app, in virtual time and under the faults of a seed.

    `scenario` is a coroutine function that enqueues jobs with this app; its own calls have no faults. The
    workers run the app's handlers. For the first virtual `seconds` their processes are killed and frozen, and their
    calls, clocks and wake-ups have faults; after that the run goes on until every job has ended. `faults`
    names the kinds (by default the seed turns on about half of them; `[]` is none). The same seed gives the
    same run. Each worker process has its own storage and connections of the app; global variables of your
    program are shared, as a database would be. Raises `AssertionError` if jobs have not ended `limit` virtual
    seconds after the last fault.
    """
    _check(app)
    plan = Plan.of_seed(seed)
    kinds = plan.kinds if faults is None else frozenset(faults)
    plan = replace(plan, kinds=kinds, workers=workers, lease=lease or app.lease, seconds=seconds)
    with Simulation(plan) as simulation:
        run = _Run(simulation, app, capacity)
        try:
            run.run(scenario, limit)
            return run.report()
        except BaseException as error:
            error.add_note(f"simulate(seed={seed}) after {simulation.scheduler.now:.3f} virtual seconds")
            raise
        finally:
            run.restore()


def _check(app: object) -> None:
    if not isinstance(app, Penstock):
        raise TypeError(f"app must be a penstock.Penstock, not {type(app).__name__}")
    if app.is_open:
        raise RuntimeError("the app is open: close it first, a simulation opens it in each of its processes")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("simulate() runs event loops of its own: call it from a function without async")


class _Run:
    """One run of an app: each node is a process with its own copy of the app's state."""

    def __init__(self, simulation: Simulation, app: Penstock, capacity: int) -> None:
        self._simulation = simulation
        self._app = app
        self._capacity = capacity
        self._own = app.__dict__
        #: The attributes of the app in each process, by the name of its node.
        self._states: dict[str, dict[str, Any]] = {}
        self._workers: dict[str, SimulatedWorker] = {}
        simulation.scheduler.on_switch = self._switch
        simulation.faults.spared.add(SCENARIO)
        simulation.queues = sorted(app.handlers)

    def restore(self) -> None:
        """Give the app its own state back."""
        self._app.__dict__ = self._own

    def _switch(self, node: Node) -> None:
        self._app.__dict__ = self._states.get(node.name.partition(":")[0], self._own)

    def _prepare(self, node: Node) -> None:
        """Give a process its own state of the app."""
        simulation = self._simulation
        before, self._app.__dict__ = self._app.__dict__, self._own
        with self._app.using_storage(simulation.storage(node), "memory:", simulation.server.clock):
            state = dict(self._own)
        state["blocking_storage"] = lambda: simulation.storage(node.threads[-1])
        self._states[node.name] = state
        self._app.__dict__ = before

    def run(self, scenario: Callable[[], Awaitable[object]], limit: float) -> None:
        """Run the scenario and the faults, then until every job has ended, then stop."""
        simulation, scheduler = self._simulation, self._simulation.scheduler
        producer = simulation.node(SCENARIO)
        self._prepare(producer)
        for number in range(simulation.plan.workers):
            simulation.add(Machine(f"worker{number}", self._work, self._stop))
        simulation.schedule_faults()
        task = producer.start(self._produce(scenario))
        scheduler.run_for(simulation.plan.seconds)
        simulation.heal()
        until = scheduler.now + limit
        while not (task.done() and self._all_ended()):
            if scheduler.now >= until:
                raise AssertionError(
                    f"these jobs have not ended {limit:g} s after the last fault: {self._unfinished()}"
                )
            if task.done() and task.exception() is not None:
                break
            scheduler.run_for(1.0)
        self._finish()
        task.result()

    async def _produce(self, scenario: Callable[[], Awaitable[object]]) -> None:
        async with self._app:
            await scenario()

    def _work(self, node: Node) -> Awaitable[None]:
        self._prepare(node)
        worker = SimulatedWorker(self._app, capacity=self._capacity, lease=self._simulation.plan.lease, id=node.name)
        self._workers[node.name] = worker
        return self._run_worker(worker)

    async def _run_worker(self, worker: SimulatedWorker) -> None:
        while True:
            try:
                await worker.run()
                return
            except StorageError:  # it could not be opened: a service manager starts the process again
                await asyncio.sleep(1.0)

    async def _stop(self, node: Node) -> None:
        await self._workers[node.name].stop(grace=5)

    def _finish(self) -> None:
        scheduler = self._simulation.scheduler
        live = [machine.node for machine in self._simulation.machines if machine.node and not machine.node.dead]
        tasks = [node.start(self._stop(node)) for node in live]
        scheduler.run_until(lambda: all(task.done() for task in tasks), scheduler.now + STOP_LIMIT)

    # jobs -----------------------------------------------------------------------------------------

    def _ask(self, verb: str, *args: Any) -> Any:
        simulation = self._simulation
        simulation.scheduler.enter(simulation.network.server)
        try:
            return simulation.server.execute(simulation.network.server, verb, args)
        finally:
            simulation.scheduler.leave()

    def _counts(self) -> dict[str, dict[State, int]]:
        return {queue: self._ask("counts", queue) for queue in self._ask("queues")}

    def _all_ended(self) -> bool:
        return not any(
            count for counts in self._counts().values() for state, count in counts.items() if state not in FINISHED
        )

    def _unfinished(self) -> str:
        found = [
            f"{job.queue}/{job.id} ({job.state})"
            for queue in self._counts()
            for job in self._ask("find", queue).jobs
            if job.state not in FINISHED
        ]
        return ", ".join(found[:10]) + (", …" if len(found) > 10 else "")

    def report(self) -> SimulationReport:
        """Return the report of the run."""
        simulation = self._simulation
        counts, history = self._counts(), simulation.history
        return SimulationReport(
            simulation.plan.seed, simulation.scheduler.now, simulation.faults.happened, history.lines, history.digest,
            counts,
        )  # fmt: skip
