"""The queues of the simulated work, and the app of one node with their handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import Failure, Job, Penstock
from penstock.model.options import HandlerArguments
from penstock.storage.base import BlockingStorage
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.simulation import Simulation
from sim.behaviours import Behaviours

__all__ = ["CAPACITY", "FAIL_QUEUES", "QUEUES", "NodeApp", "make_app", "units_of"]

#: The units of a worker; a run of most queues holds 10.
CAPACITY = 40

COMMON: HandlerArguments = {
    "min_backoff": 0.5, "max_backoff": 8.0, "max_retries": 3, "max_stalls": 3, "max_timeouts": 2, "timeout": 5.0,
}  # fmt: skip

FAILURES: dict[str, Any] = {"size": 10, "min_backoff": 1.0, "max_backoff": 10.0, "timeout": 5.0}

#: The handler options of each queue; None for a queue that only reservations serve.
QUEUES: dict[str, HandlerArguments | None] = {
    "mail": {**COMMON, "result_ttl": 600.0, "timeout": 30.0},
    "mail/after": {**COMMON},
    "lane": {**COMMON, "size": 5},
    "mixed": {**COMMON, "retry_position": "due", "jitter": 0.5, "timeout": 40.0},
    "batch": {**COMMON, "batch_size": 3},
    "plain": {**COMMON, "concurrency": 2},
    "brief": {**COMMON, "retain": "none", "timeout": 40.0},
    "once": {**COMMON, "at_most_once": True, "max_attempts": 3},
    "temp": {**COMMON, "result_ttl": 5.0},
    "pull": None,
}

#: The queues whose failed jobs have fail jobs, and the queues of those.
FAIL_QUEUES = {"mail": "mail/failures", "batch": "batch/failures"}

#: Queues without callers, updates, delays and discards: their groups must run exactly in the order of acceptance.
IN_ORDER = frozenset({"lane"})


class NodeApp(Penstock):
    """The app of one node; its lease thread has a storage of its own."""

    thread_storage: Callable[[], Any]

    def blocking_storage(self) -> BlockingStorage | None:
        return self.thread_storage()


def make_app(simulation: Simulation, node: Node, behaviours: Behaviours | None = None) -> NodeApp:
    """Return the app of a node; with behaviours it has handlers."""
    app = NodeApp(storage=simulation.storage(node), clock=simulation.server.clock)
    app.thread_storage = lambda: simulation.storage(node.threads[-1])
    for queue, options in QUEUES.items():
        if options is not None:
            register(app, queue, options, node, behaviours)
    return app


def register(app: Penstock, queue: str, options: HandlerArguments, node: Node, behaviours: Behaviours | None) -> None:
    """Register the handler of a queue; without behaviours only its options count, for reservations and cancels."""

    async def one(payload: Any, job: Job) -> Any:
        assert behaviours is not None
        return await behaviours.run(node, payload, job)

    async def many(payloads: list[Any], jobs: list[Job]) -> Any:
        assert behaviours is not None
        return await behaviours.run_batch(node, payloads, jobs)

    def plain(payload: Any, job: Job) -> Any:
        assert behaviours is not None
        return behaviours.run_plain(node, payload, job)

    async def failed(failure: Failure, job: Job) -> None:
        assert behaviours is not None
        await behaviours.run_failure(node, failure, job)

    handler: Any = {"batch": many, "plain": plain}.get(queue, one)
    if queue in FAIL_QUEUES:
        options = {**options, "on_failure": failed, "failure_options": FAILURES}
    app.listen(queue, handler, **options)


def units_of(queue: str) -> int:
    """Return the units that a run of a queue holds."""
    options = QUEUES.get(queue) or {}
    return 0 if options.get("concurrency") else options.get("size", 10)
