"""The supervisor of a simulated worker: its children are started, crash, hang, and die with their parent."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import Every, Penstock
from penstock.model.job import State
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Machine, Simulation
from penstock.testing.simulation.workers import SimulatedWorker

PLAN = Plan(0, frozenset(), 1.0, 1, 4.0, 60.0)


class AppOfNode(Penstock):
    """The app of one node; its lease thread has a storage of its own."""

    thread_storage: Any

    def blocking_storage(self) -> Any:
        return self.thread_storage()


class Family:
    """A worker with children, two by default, and the attempts of the jobs that they ran."""

    def __init__(self, simulation: Simulation, lease: float = 4.0, **options: Any) -> None:
        self.lease = lease
        self.options: dict[str, Any] = {"processes": 2, **options}
        self.simulation = simulation
        self.runs: list[tuple[str, int]] = []
        self.worker: SimulatedWorker | None = None
        self.client = self.app(simulation.node("client"))
        self.machine = simulation.add(Machine("w", self._work))

    def app(self, node: Node) -> Penstock:
        app = AppOfNode(storage=self.simulation.storage(node), clock=self.simulation.server.clock)
        app.thread_storage = lambda: self.simulation.storage(node.threads[-1])

        async def handle(payload: Any, job: Any) -> str:
            self.runs.append((node.name, job.attempt))
            if payload == "hang" and job.attempt == 1:
                node.freeze(1000, blocked=True)
                await asyncio.sleep(0)
            if payload == "stand still" and job.attempt == 1:
                asyncio.get_running_loop().call_soon(lambda: node.freeze(1000, blocked=True))
            await node_sleep(payload)
            return "done"

        app.listen("q", handle, timeout=5, min_backoff=0.1)
        return app

    async def _work(self, node: Node) -> None:
        self.worker = SimulatedWorker(self.app(node), lease=self.lease, **self.options)
        self.worker.child_app = self.app
        await self.worker.run()

    @property
    def parent(self) -> Node:
        assert self.machine.node is not None
        return self.machine.node

    def alive(self) -> list[Node]:
        """Return the children that live."""
        return [child for child in self.parent.children if not child.dead]

    def enqueue(self, payload: Any) -> None:
        """Have the client enqueue a job, and wait until it was claimed."""
        client = self.simulation.scheduler.nodes[1]
        task = client.start(self.client.queue("q").enqueue(payload, id="a"))
        assert self.simulation.scheduler.run_until(lambda: task.done() and bool(self.runs), 60.0)

    def state(self) -> State:
        """Return the state of the job."""
        server = self.simulation.network.server
        self.simulation.scheduler.enter(server)
        [job] = self.simulation.server.execute(server, "get", ("q", ["a"]))
        return job.state

    def until_completed(self, limit: float = 60.0) -> None:
        """Run until the job is completed."""
        scheduler = self.simulation.scheduler
        until = scheduler.now + limit
        while self.state() is not State.COMPLETED:
            assert scheduler.now < until
            scheduler.run_for(0.5)


async def node_sleep(payload: Any) -> None:
    """Sleep if the payload is a number of seconds."""
    if isinstance(payload, int):
        await asyncio.sleep(payload)


def test_two_children_start_and_one_runs_the_job() -> None:
    """The handler is called in a child, not in the parent."""
    with Simulation(PLAN) as simulation:
        family = Family(simulation)
        family.enqueue(1)
        family.until_completed()
        assert len(family.alive()) == 2
        assert [name for name, _ in family.runs] in (["w.0.0"], ["w.0.1"])


def test_a_child_that_crashes_is_replaced_and_its_job_runs_again() -> None:
    """The parent gives the job back at once, with a stall, and another child has its second attempt."""
    with Simulation(PLAN) as simulation:
        family = Family(simulation)
        family.enqueue(3)
        next(child for child in family.alive() if child.name == family.runs[0][0]).kill()
        began = simulation.scheduler.now
        assert simulation.scheduler.run_until(lambda: len(family.runs) == 2, began + 2.0)
        family.until_completed()
        assert [attempt for _, attempt in family.runs] == [1, 2]
        assert len(family.alive()) == 2


def test_a_child_that_hangs_is_killed_and_its_job_runs_elsewhere() -> None:
    """A run that does not end at its timeout costs its child; the job is retried."""
    with Simulation(PLAN) as simulation:
        family = Family(simulation)
        family.enqueue("hang")
        family.until_completed()
        [first, second] = [name for name, _ in family.runs]
        assert first != second
        assert first not in [child.name for child in family.alive()]


def test_a_child_that_stands_still_before_its_settle_is_killed_and_its_job_runs_elsewhere() -> None:
    """A child whose run has ended and whose event loop turns no more loses its claim after three leases."""
    with Simulation(PLAN) as simulation:
        family = Family(simulation)
        family.enqueue("stand still")
        simulation.scheduler.run_for(2 * 4.0)
        assert len(family.runs) == 1  # it might go on: not yet
        family.until_completed(3 * 4.0)
        assert [attempt for _, attempt in family.runs] == [1, 2]
        assert family.runs[0][0] not in [child.name for child in family.alive()]


def test_children_die_with_their_parent() -> None:
    """When the parent is killed no handler runs any more."""
    with Simulation(PLAN) as simulation:
        family = Family(simulation)
        family.enqueue(3)
        family.parent.kill()
        simulation.scheduler.run_for(10)
        assert family.alive() == []
        assert family.state() is State.RUNNING


def test_a_frozen_parent_does_not_stop_its_children_until_their_lease() -> None:
    """A child works on while its parent stands still, and ends its run when the lease is over."""
    with Simulation(PLAN) as simulation:
        family = Family(simulation)
        family.enqueue(2)
        family.parent.freeze(30)
        family.until_completed(3.5)


def test_a_schedule_after_a_time_without_any_is_fired_soon() -> None:
    """The parent has no schedule to fire and looks seldom; an answer to a claim of a child names the new one."""
    with Simulation(PLAN) as simulation:
        family, scheduler = Family(simulation), simulation.scheduler
        client, schedules = scheduler.nodes[1], family.client.queue("q").schedules
        scheduler.run_for(2.0)
        for name in ("first", "second"):
            client.start(schedules.put(name, Every(1)))
            before = len(family.runs)
            scheduler.run_for(8.0)
            assert len(family.runs) > before, name
            client.start(schedules.remove(name))
            scheduler.run_for(40.0)
