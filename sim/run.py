"""One simulated run: work under faults, then healing, then the checks of everything that must hold at the end."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock import Event
from penstock.errors import StorageError
from penstock.model.job import FINISHED
from penstock.testing.simulation.faults import Fault
from penstock.testing.simulation.history import Line
from penstock.testing.simulation.loop import Node, StuckError
from penstock.testing.simulation.network import Request
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Machine, Simulation
from penstock.testing.simulation.workers import SimulatedWorker
from sim.behaviours import Behaviours
from sim.ledger import Ledger
from sim.queues import CAPACITY, FAIL_QUEUES, QUEUES, NodeApp, make_app
from sim.runs import Runs
from sim.shadow import Shadow
from sim.violation import Violation
from sim.work import Work

__all__ = ["Report", "run_seed"]

#: Virtual seconds after the last fault, until all jobs must have ended, and for which the TTLs of all jobs are over.
HEALING, ALL_ENDED, EXPIRED = 40.0, 900.0, 100.0

#: After this many calls all jobs are compared with the model.
COMPARE = 20

#: The longest TTL of the work (seconds), and how long stopping may take.
TTL, STOP = 8 * 86400.0, 90.0


@dataclass(frozen=True)
class Report:
    """The result of a run."""

    plan: Plan
    jobs: int
    violations: list[Violation]
    digest: str
    history: list[Line]
    faults: list[Fault]
    #: Virtual seconds, calls carried out, and runs of handlers.
    seconds: float
    calls: int
    runs: int


def jobs_of(seed: int) -> int:
    """Return the number of jobs that a seed's producers put."""
    return Random(f"{seed}/jobs").randint(15, 60)


def run_seed(plan: Plan, url: str = "memory:", *, jobs: int | None = None, model: bool = True) -> Report:
    """Run one plan and check it. With `model` False only the ledger and the runs are checked."""
    count = jobs_of(plan.seed) if jobs is None else jobs
    with Simulation(plan, url, namespace=f"sim{plan.seed}-{os.getpid()}") as simulation:
        run = SimulatedRun(simulation, count, model)
        try:
            run.run()
        except StuckError as error:
            run.ledger.fault(f"stuck: {error}")
        except StopRun:
            pass
        scheduler, history = simulation.scheduler, simulation.history
        return Report(
            plan, count, run.ledger.violations, history.digest, history.lines, simulation.faults.happened,
            scheduler.now, simulation.network.executed, run.runs.count,
        )  # fmt: skip


class StopRun(Exception):
    """Raised at the first violation: what follows it may be its consequence."""


class SimulatedRun:
    """The parts of a run, and its phases."""

    def __init__(self, simulation: Simulation, jobs: int, model: bool) -> None:
        self.simulation = simulation
        self.plan = plan = simulation.plan
        self.scheduler = simulation.scheduler
        self._jobs = jobs
        clock = simulation.server.clock
        self.ledger = Ledger(lambda: self.scheduler.now, lambda: clock.ms)
        self.runs = Runs(self.ledger, simulation.faults, simulation.history)
        self.shadow = Shadow(self.ledger, simulation.server, lambda: clock.ms) if model else None
        self.behaviours = Behaviours(plan.seed, self.runs, lambda: not self.work.stopping)
        self.work = Work(plan.seed, jobs, self.ledger.fault, lambda: list(self.ledger.live))
        self._workers: dict[str, SimulatedWorker] = {}
        self._apps: list[tuple[Node, NodeApp]] = []
        self._clients: list[asyncio.Task[None]] = []
        self._local_ends: Counter[tuple[str, str]] = Counter()
        self._fail_jobs: Counter[str] = Counter()
        self._compared = 0
        simulation.network.on_request.append(self._before)
        simulation.network.observers.append(self._observe)
        simulation.queues = [queue for queue in QUEUES if queue != "pull"]
        simulation.server.read_events()

    # observers ------------------------------------------------------------------------------------

    def _before(self, request: Request) -> None:
        if self.shadow is not None:
            self.shadow.before(request)

    def _observe(self, request: Request, answer: Any) -> None:
        self.ledger.observe(request, answer)
        if self.shadow is not None:
            self.shadow.observe(request, answer)
        if request.verb in ("look", "time", "open", "workers", "beat"):
            return
        self._compare_events(request.verb)
        self._compared += 1
        if self.shadow is not None and self._compared % COMPARE == 0 and not self.ledger.violations:
            server = self.simulation.server
            self.shadow.compare_all(lambda queue: server.execute(request.node, "find", (queue, None, None, 1000)).jobs)
            self._compare_events("find")

    def _compare_events(self, verb: str) -> None:
        events = [event for event in self.simulation.server.new_events() if verb != "announce"]
        for event in events:
            self.ledger.event(event)
            if event.name == "enqueued" and event.queue in FAIL_QUEUES.values():
                self._fail_jobs[event.queue] += 1
        if self.shadow is not None:
            self.shadow.compare_events(verb, events)

    def _event(self, node: Node, event: Event) -> None:
        self.simulation.history.add(node.name, "event", f"{event.name} {event.queue} {event.id} {event.attempt}")
        if event.name in ("completed", "failed", "cancelled"):
            self._local_ends[event.queue, event.id] += 1

    # nodes ----------------------------------------------------------------------------------------

    def _app(self, node: Node, handlers: bool = False) -> NodeApp:
        app = make_app(self.simulation, node, self.behaviours if handlers else None)
        app.on("*")(lambda event: self._event(node, event))
        self._apps.append((node, app))
        return app

    async def _work_on(self, node: Node) -> None:
        app = self._app(node, handlers=True)
        name = node.name if self.plan.seed % 2 else node.name.partition(".")[0]
        worker = SimulatedWorker(app, capacity=CAPACITY, lease=self.plan.lease, id=name)
        self._workers[node.name] = worker
        while True:
            try:
                await worker.run()
                return
            except StorageError:
                await asyncio.sleep(1.0)

    async def _stop_worker(self, node: Node) -> None:
        await self._workers[node.name].stop(grace=3)

    async def _pull_on(self, node: Node) -> None:
        await self.work.pull(self._app(node), node)

    def _client(self, name: str, act: Callable[[NodeApp, Node], Any]) -> None:
        node = self.simulation.node(name)
        self._clients.append(node.start(act(self._app(node), node)))

    def _start(self) -> None:
        plan, work, seconds = self.plan, self.work, self.plan.seconds
        for number in range(plan.workers):
            self.simulation.add(Machine(f"w{number}", self._work_on, self._stop_worker))
        self.simulation.add(Machine("puller", self._pull_on))
        share = self._jobs // 2
        for number in range(2):
            self._client(f"producer{number}", lambda app, node: work.produce(app, node, share, 0.7 * seconds))
        self._client("caller", lambda app, node: work.call(app, node, self._jobs // 4, 0.6 * seconds))
        self._client("operator", lambda app, node: work.operate(app, node, seconds))
        self.simulation.schedule_faults()

    # phases ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work under faults, heal, wait until all has ended, let the TTLs pass, stop, and check."""
        self._start()
        self._run_for(self.plan.seconds)
        self.simulation.heal()
        self.behaviours.calm = True
        self._run_for(HEALING)
        self.work.stopping = True
        self._until(self._all_ended, ALL_ENDED, self._not_ended)
        self._until(lambda: all(task.done() for task in self._clients), 60.0, lambda: "a caller waits for ever")
        for task in self._clients:
            task.result()
        self.ledger.check_local_events(self._local_ends)
        self.ledger.check_end(self._fail_jobs)
        self.simulation.server.clock.offset += TTL
        self._run_for(EXPIRED)
        self._stop()
        self._check_rest()

    def _run_for(self, seconds: float) -> None:
        self._until(lambda: False, seconds, None)

    def _until(self, done: Callable[[], bool], seconds: float, why: Callable[[], str] | None) -> None:
        limit = self.scheduler.now + seconds
        while not done():
            if self.scheduler.now >= limit:
                if why is not None:
                    self.ledger.fault(why())
                break
            self.scheduler.run_until(lambda: bool(self.ledger.violations), min(limit, self.scheduler.now + 2.0))
            if self.ledger.violations:
                break
        if self.ledger.violations:
            raise StopRun

    def _ask(self, verb: str, *args: Any) -> Any:
        server = self.simulation.network.server
        self.scheduler.enter(server)
        try:
            return self.simulation.server.execute(server, verb, args)
        finally:
            self.scheduler.leave()

    def _unfinished(self) -> list[Any]:
        found: list[Any] = []
        for queue in self._ask("queues"):
            counts = self._ask("counts", queue)
            if any(count for state, count in counts.items() if state not in FINISHED):
                found += [job for job in self._ask("find", queue).jobs if job.state not in FINISHED]
        return found

    def _all_ended(self) -> bool:
        return not self.work.waiting and not self._unfinished()

    def _not_ended(self) -> str:
        left = [f"{job.queue}/{job.id} is {job.state}" for job in self._unfinished()]
        if not left:
            return "a caller waits for ever"
        return f"jobs have not ended {ALL_ENDED:g} s after healing: {', '.join(left[:5])}"

    def _stop(self) -> None:
        self.work.closing = True
        self._run_for(10.0)
        live = [(node, app) for node, app in self._apps if not node.dead]
        tasks = [node.start(self._close(node, app)) for node, app in live]
        self._until(lambda: all(task.done() for task in tasks), STOP, lambda: "a worker does not stop")
        for task in tasks:
            task.result()

    async def _close(self, node: Node, app: NodeApp) -> None:
        if node.name in self._workers:
            await self._stop_worker(node)
        await app.close()

    def _check_rest(self) -> None:
        for node in self.scheduler.nodes:
            for error in node.errors:
                self.ledger.fault(f"an exception reached the event loop of {node.name}: {error}")
        self.scheduler.enter(self.simulation.network.server)
        self.simulation.server.new_events()
        if left := self.simulation.server.left():
            self.ledger.fault(f"left after all TTLs: {', '.join(left)}")
        self.scheduler.leave()
