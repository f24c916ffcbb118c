"""One simulated run: work under faults, then healing, then the checks of everything that must hold at the end."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock import Event
from penstock.errors import PenstockError
from penstock.model.job import FINISHED
from penstock.storage.base import Claimed, Complete
from penstock.testing.simulation.faults import Fault, draws
from penstock.testing.simulation.history import Line
from penstock.testing.simulation.loop import Node, StuckError
from penstock.testing.simulation.network import Request
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Machine, Simulation
from penstock.testing.simulation.workers import SimulatedWorker
from sim.behaviours import Behaviours, error_of
from sim.drills import Driller
from sim.ledger import Ledger
from sim.queues import CAPACITIES, FAIL_QUEUES, QUEUES, WITH_CHILDREN, NodeApp, make_app
from sim.runs import Runs
from sim.settings_checks import SettingsChecks
from sim.shadow import Shadow
from sim.violation import Violation
from sim.work import CLIENTS, PULLERS, Prober, Shared, is_heavy

__all__ = ["Report", "SimulatedRun", "run_seed"]

#: The longest fault, in virtual seconds, and of those that a lease scales, in leases.
LONGEST, LONGEST_LEASES = 15.0, 2.5

#: Virtual seconds until all jobs must have ended, and for which the TTLs of all jobs are over: two purges, and a
#: heartbeat and a look of each worker, after which the declarations of the last started one hold.
ALL_ENDED, EXPIRED = 300.0, 55.0

#: Virtual seconds until a child process that was killed must have been replaced.
REPLACED = 10.0

#: After this many calls that changed something all jobs of one queue are compared with the model.
COMPARE = 13

#: Every how many seeds the situations of `sim/drills` are made: they take as long as a third of a run.
DRILLS = 4

#: The number of child processes of a worker that has any.
CHILDREN = 2

#: How often (seconds) waiters of some seeds read the storage although no wake-up came.
SELDOM = 60.0

#: The share of events at which a listener raises.
RAISING = 0.01

#: How long (seconds) after that declarations must hold: a worker without a heartbeat loses them until its next look.
DECLARED = 40.0

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


def run_seed(
    plan: Plan, url: str = "memory:", *, jobs: int | None = None, model: bool = True, until: float = math.inf
) -> Report:
    """Run one plan and check it, but no longer than `until` (virtual seconds).

    With `model` False only the ledger and the runs are checked.
    """
    count = jobs_of(plan.seed) if jobs is None else jobs
    with Simulation(plan, url, namespace=f"sim{plan.seed}-{os.getpid()}") as simulation:
        run = SimulatedRun(simulation, count, model, until)
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


def reads_events(seed: int) -> bool:
    """Return whether a seed compares events; the others show that nothing needs a listener."""
    return seed % 3 != 0


def has_children(seed: int, node: str) -> bool:
    """Return whether the worker of a node has child processes."""
    return seed % WITH_CHILDREN == 1 and node.startswith("w0.")


def worker_id(seed: int, node: str) -> str:
    """Return the id of the worker of a node: in half of the seeds one that is started again keeps it."""
    return node if seed % 2 else node.partition(".")[0]


def capacity_of(seed: int) -> int:
    """Return the units of each worker of a seed."""
    return CAPACITIES[seed % len(CAPACITIES)]


def healing_of(plan: Plan) -> float:
    """Return how long (virtual seconds) a run heals: until the faults that began last are over, and a while longer."""
    return max(LONGEST, LONGEST_LEASES * plan.lease) + 5.0


def changed(answer: Any) -> bool:
    """Return whether a call of a worker's loops found anything."""
    return bool(answer.claims if isinstance(answer, Claimed) else answer)


def queue_of(request: Request) -> str | None:
    """Return the queue that a call is about, None if it is about several or none."""
    match request.verb, request.args:
        case (("put" | "settle" | "fire"), ([first, *_], *_)):
            return first.queue
        case "set_schedule", (record, *_):
            return record.queue
        case "set_limit", (scope, *_) if scope.name in QUEUES:
            return scope.name
        case _, (str() as queue, *_) if queue in QUEUES:
            return queue
        case _:
            return None


def refusal_of(request: Request) -> Exception | None:
    """Return the error of a settle that has an outcome which the storage refuses."""
    for s in request.args[0] if request.verb == "settle" else ():
        if isinstance(s.resolution, Complete) and s.resolution.result.startswith(b'"refused'):
            return error_of(s.resolution.result)
    return None


class StopRun(Exception):
    """Raised at the first violation, because what follows may be its consequence; and when a run need not go on."""


class SimulatedRun:
    """The parts of a run, and its phases."""

    def __init__(self, simulation: Simulation, jobs: int, model: bool, until: float) -> None:
        self.simulation = simulation
        self._end = until
        self.plan = plan = simulation.plan
        self.scheduler = simulation.scheduler
        clock = simulation.server.clock
        self.ledger = Ledger(lambda: self.scheduler.now, lambda: clock.ms)
        self.runs = Runs(self.ledger, simulation.faults, simulation.history, plan.lease, capacity_of(plan.seed))
        model = model and not is_heavy(plan.seed)  # the model knows no bound of the bytes of reap and promotion
        self.shadow = Shadow(self.ledger, simulation.server, lambda: clock.ms) if model else None
        self.behaviours = Behaviours(plan.seed, self.runs, lambda: not self.work.stopping, plan.lease)
        self.work = Shared(plan.seed, jobs, plan.seconds, self.ledger.fault, self.ledger.running)
        self.work.network, self.work.simulation, self.work.runs = simulation.network, simulation, self.runs
        self._workers: dict[str, SimulatedWorker] = {}
        #: The nodes whose worker was stopped: one that waits for the storage does not run again.
        self._stopped: set[str] = set()
        self._apps: list[tuple[Node, NodeApp]] = []
        self._clients: list[asyncio.Task[None]] = []
        self._local_ends: Counter[tuple[str, str]] = Counter()
        self._fail_jobs: Counter[str] = Counter()
        self._compared = 0
        self._settings = SettingsChecks(plan.seed, self.ledger, self._ask, lambda node: worker_id(plan.seed, node))
        simulation.network.on_request.append(self._before)
        simulation.network.refuses = refusal_of
        self.work.check_damage = self._check_damage
        simulation.faults.spared.add("stager")
        simulation.faults.bias["walker", "clock_ahead"] = 10.0
        simulation.network.observers.append(self._observe)
        simulation.queues = [queue for queue, options in QUEUES.items() if options is not None]
        if plan.seed % 2:  # the workers must look by themselves
            simulation.server.poll = SELDOM
        self._reads_events = reads_events(plan.seed)
        if self._reads_events:
            simulation.server.read_events()

    # observers ------------------------------------------------------------------------------------

    def _before(self, request: Request) -> None:
        if self.shadow is not None:
            self.shadow.before(request)

    def _observe(self, request: Request, answer: Any) -> None:
        self.ledger.observe(request, answer)
        self.runs.observe(request)
        if request.verb == "fire":
            self._settings.check_firer(request.node.name, request.args[0])
        if self.shadow is not None:
            self.shadow.observe(request, answer)
        if request.verb in ("look", "time", "open", "workers", "beat"):
            return
        self._compare_events(request.verb)
        if request.verb in ("claim", "reap", "purge", "renew") and not changed(answer):
            return
        self._compared += 1
        if self.shadow is not None and self._compared % COMPARE == 0 and not self.ledger.violations:
            queue = queue_of(request) or self._compared_next()
            if queue == "slow" and request.verb == "put":  # a listing promotes its jobs
                return
            execute = self.simulation.server.execute
            self.shadow.compare_queue(
                queue, lambda queue: self._find_all(request.node, queue),
                lambda verb, args: execute(request.node, verb, args),
            )  # fmt: skip
            self._compare_events("find")

    def _compared_next(self) -> str:
        """Return the queue to compare after a call that is about none."""
        queues = list(QUEUES)
        return queues[self._compared // COMPARE % len(queues)]

    def _check_damage(self, *queues: str) -> None:
        """Check that the storage counts nothing as damaged: no fault of a run changes what is stored."""
        server = self.simulation.network.server
        with self.scheduler.entered(server):
            found = self.simulation.server.execute(server, "stats", (list(queues),))
        if self.shadow is not None:
            self.shadow.repeat("stats", (list(queues),))
        for stats in found:
            if stats.damaged:
                self.ledger.fault(f"{stats.damaged} records of {stats.queue} count as damaged")

    def _find_all(self, node: Node, queue: str) -> list[Any]:
        """Return all jobs of a queue, page by page: a page has no more bytes than a call may carry."""
        jobs: list[Any] = []
        after = None
        while True:
            page = self.simulation.server.execute(node, "find", (queue, None, after, 1000))
            jobs += page.jobs
            after = page.cursor
            if after is None:
                return jobs

    def _compare_events(self, verb: str) -> None:
        if not self._reads_events:
            if self.shadow is not None:
                self.shadow.model.events.clear()
            return
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
        if draws(self.plan.seed, f"listener/{event.name}/{event.id}")[0] < RAISING:
            raise BaseException("drawn for a listener")

    # nodes ----------------------------------------------------------------------------------------

    def _app(self, node: Node, handlers: bool = False) -> NodeApp:
        app = make_app(self.simulation, node, self.behaviours if handlers else None)
        app.on("*")(lambda event: self._event(node, event))
        self._apps.append((node, app))
        return app

    def _child_app(self, node: Node) -> NodeApp:
        """Return the app of a child process, which closes it itself."""
        app = make_app(self.simulation, node, self.behaviours)
        app.on("*")(lambda event: self._event(node, event))
        return app

    async def _work_on(self, node: Node) -> None:
        app = self._app(node, handlers=True)
        processes = CHILDREN if has_children(self.plan.seed, node.name) else 0
        worker = SimulatedWorker(
            app,
            capacity=capacity_of(self.plan.seed),
            lease=self.plan.lease,
            id=worker_id(self.plan.seed, node.name),
            processes=processes,
        )
        worker.child_app = self._child_app
        self._workers[node.name] = worker
        while node.name not in self._stopped:
            try:
                await worker.run()
                return
            except PenstockError:  # the storage is away, or the first children died at once
                await asyncio.sleep(1.0)

    async def _stop_worker(self, node: Node) -> None:
        self._stopped.add(node.name)
        await self._workers[node.name].stop(grace=3)

    async def _pull_on(self, node: Node) -> None:
        puller = PULLERS[node.name.partition(".")[0]]
        await puller(self.work, self._app(node), node).run()

    def start(self) -> None:
        """Start all processes, and have the faults happen at their times."""
        for number in range(self.plan.workers):
            self.simulation.add(Machine(f"w{number}", self._work_on, self._stop_worker))
        for name in PULLERS:
            self.simulation.add(Machine(name, self._pull_on))
        for name, client in CLIENTS.items():
            node = self.simulation.node(name)
            self._clients.append(node.start(client(self.work, self._app(node), node).run()))
        node = self.simulation.node("prober")
        self._prober = Prober(self.work, self._app(node), node)
        node = self.simulation.scheduler.node("driller")
        self._driller = Driller(self.work, self._app(node), node)
        self.simulation.schedule_faults()

    # phases ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work under faults, heal, wait until all has ended, let the TTLs pass, stop, and check."""
        self.start()
        self._run_for(self.plan.seconds)
        self.simulation.heal()
        self.behaviours.calm = True
        self._run_for(healing_of(self.plan))
        self._settings.check_ticks(self._live_workers())
        self.work.stopping = True
        self._until(self._all_ended, ALL_ENDED, self._not_ended)
        self._until(lambda: all(task.done() for task in self._clients), 60.0, lambda: "a caller waits for ever")
        for task in self._clients:
            task.result()
        self._check_children()
        self._check_prompt()
        if self._reads_events:
            self.ledger.check_local_events(self._local_ends)
        self.ledger.check_end(self._fail_jobs if self._reads_events else None)
        if self.plan.seed % DRILLS == 1:
            self._drill()
        self.simulation.server.clock.offset += TTL
        self._run_for(EXPIRED)
        wrong = self._settings.wrong_declarations
        self._until(lambda: not wrong(self._live_workers()), DECLARED, lambda: wrong(self._live_workers())[0])
        if self.shadow is not None:
            self.shadow.compare_totals(lambda verb, args: self._ask(verb, *args))
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
            self.scheduler.run_until(self.ledger.violations.__len__, min(limit, self.scheduler.now + 2.0))
            if self.ledger.violations or self.scheduler.now >= self._end:
                raise StopRun
        if self.ledger.violations:
            raise StopRun

    def _ask(self, verb: str, *args: Any) -> Any:
        server = self.simulation.network.server
        self.scheduler.enter(server)
        try:
            answer = self.simulation.server.execute(server, verb, args)
        finally:
            self.scheduler.leave()
        if self.shadow is not None:
            self.shadow.repeat(verb, args)
        return answer

    def _unfinished(self) -> list[Any]:
        found: list[Any] = []
        for queue in self._ask("queues"):
            counts = self._ask("counts", queue)
            if any(count for state, count in counts.items() if state not in FINISHED):
                found += [job for job in self._ask("find", queue).jobs if job.state not in FINISHED]
        return found

    def _all_ended(self) -> bool:
        return not self.work.waited and not self.work.ticking and not self._unfinished()

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

    def _check_prompt(self) -> None:
        """Check that waiting processes are woken, and look by themselves if no wake-up comes."""
        probe = self._prober.node.start(self._prober.run())
        self._until(probe.done, 120.0, lambda: "a probe does not end")
        probe.result()
        self._until(self._all_ended, ALL_ENDED, self._not_ended)

    def _drill(self) -> None:
        """Make situations that a seed would draw seldom."""
        drill = self._driller.node.start(self._driller.run())
        self._until(drill.done, 300.0, lambda: "a drill does not end")
        drill.result()
        self._until(self._all_ended, ALL_ENDED, self._not_ended)

    def _check_children(self) -> None:
        """Check that each worker with child processes has all of them, or gets them soon, and no other."""
        self._until(lambda: not self._wrong_children(), REPLACED, lambda: ", ".join(self._wrong_children()))

    def _wrong_children(self) -> list[str]:
        """Return a text for each worker whose child processes are too many or too few."""
        nodes = [machine.node for machine in self.simulation.machines if machine.node and not machine.node.dead]
        alive = {
            node.name: sum(not child.dead for child in node.children)
            for node in nodes
            if has_children(self.plan.seed, node.name)
        }
        return [
            f"{name} has {count} child processes instead of {CHILDREN}"
            for name, count in alive.items()
            if count != CHILDREN
        ]

    def _live_workers(self) -> list[str]:
        """Return the nodes of the live workers."""
        nodes = [machine.node for machine in self.simulation.machines if machine.node and not machine.node.dead]
        return [node.name for node in nodes if node.name in self._workers]

    def _check_rest(self) -> None:
        for node in self.scheduler.nodes:
            for error in node.errors:
                self.ledger.fault(f"an exception reached the event loop of {node.name}: {error}")
        self._settings.remove()
        self.scheduler.enter(self.simulation.network.server)
        self.simulation.server.new_events()
        if left := self.simulation.server.left():
            self.ledger.fault(f"left after all TTLs: {', '.join(left)}")
        self.scheduler.leave()
