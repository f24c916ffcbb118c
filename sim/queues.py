"""The queues of the simulated work, and the app of one node with their handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock import Failure, Job, Penstock, Schedule
from penstock.model.options import HandlerArguments
from penstock.storage.base import BlockingStorage
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.simulation import Simulation
from sim.behaviours import MAX_RESULT, Behaviours
from sim.declared import FAMILY, TICKS, version_of

__all__ = [
    "BOUNDS",
    "CAPACITIES",
    "FAIL_QUEUES",
    "HEAVY_QUEUE",
    "IN_ORDER",
    "NOT_UPDATED",
    "QUEUES",
    "WITH_CHILDREN",
    "NodeApp",
    "make_app",
    "timeout_of",
    "units_of",
]

#: The units of a worker; a run of most queues holds 10. A worker asks for as many queues at once as have room, so of
#: every three seeds only the third is short of units.
CAPACITIES = (120, 120, 40)

#: Every fourth seed has a worker with child processes.
WITH_CHILDREN = 4

COMMON: HandlerArguments = {
    "min_backoff": 0.5, "max_backoff": 8.0, "max_retries": 3, "max_stalls": 3, "max_timeouts": 2, "timeout": 5.0,
}  # fmt: skip

FAILURES: dict[str, Any] = {"size": 10, "min_backoff": 1.0, "max_backoff": 10.0, "timeout": 5.0}

#: The handler options of each queue; None for a queue that only reservations serve.
QUEUES: dict[str, HandlerArguments | None] = {
    "mail": {**COMMON, "result_ttl": 600.0, "timeout": 30.0, "permanent": LookupError},
    "mail/after": {**COMMON},
    "lane": {**COMMON, "size": 5},
    "mixed": {**COMMON, "retry_position": "due", "jitter": 0.5, "timeout": 40.0},
    "batch": {**COMMON, "batch_size": 3},
    "plain": {**COMMON, "concurrency": 2},
    "brief": {**COMMON, "retain": "none", "timeout": 40.0},
    "once": {**COMMON, "at_most_once": True, "max_attempts": 3},
    "temp": {**COMMON, "result_ttl": 5.0},
    "burst": {**COMMON, "size": 2, "result_ttl": 60.0},
    "bounded": {**COMMON, "max_queued": 3, "max_backoff": 2.0},
    "long": {**COMMON, "timeout": 60.0},
    "heavy": {**COMMON, "size": 2, "result_ttl": 60.0},
    "moved": {**COMMON, "min_backoff": 2.0, "max_backoff": 6.0, "result_ttl": 20.0},
    "llm/ask": {**COMMON, "size": 5},
    "llm/sum": {**COMMON, "size": 5},
    "tenant": {**COMMON, "size": 5},
    "strict": {**COMMON, "size": 5},
    "keyed": {**COMMON, "size": 5, "result_ttl": 30.0},
    "each": {**COMMON, "size": 5, "permanent": LookupError},
    "by key": {**COMMON, "size": 5, "id_by": "key", "group_by": "tenant", "cost_by": "tokens"},
    "ticks": {**COMMON, "size": 2, "max_stalls": None},
    "pull": None,
    "slow": None,
    "walk": None,
    "walk/side": None,
    "walk/failures": None,
    "walk/calm": None,
    "walk/rare": None,
    "scene": None,
    "scene/side": None,
    "scene/failures": None,
    "quiet": None,
}

#: The queues that take no more than this many waiting jobs.
BOUNDS = {queue: options["max_queued"] for queue, options in QUEUES.items() if options and "max_queued" in options}

#: The queues whose failed jobs have fail jobs, and the queues of those.
FAIL_QUEUES = {"mail": "mail/failures", "batch": "batch/failures"}

#: The queue whose records are longer than one call may carry; in seeds that have it there is no model.
HEAVY_QUEUE = "heavy"

#: Queues without callers, updates, delays and discards: their groups must start exactly in the order of acceptance.
IN_ORDER = frozenset({"lane", "strict", "tenant"})

#: Queues in which each accepted job has an end of its own: none is merged into another.
NOT_UPDATED = frozenset({"lane", "burst", "heavy", "llm/ask", "llm/sum", "tenant", "strict", "ticks"})


class NodeApp(Penstock):
    """The app of one node; its lease thread has a storage of its own."""

    thread_storage: Callable[[], Any]

    def blocking_storage(self) -> BlockingStorage | None:
        return self.thread_storage()


def make_app(simulation: Simulation, node: Node, behaviours: Behaviours | None = None) -> NodeApp:
    """Return the app of a node; with behaviours it has handlers."""
    app = NodeApp(storage=simulation.storage(node), clock=simulation.server.clock, max_result=MAX_RESULT)
    app.thread_storage = lambda: simulation.storage(node.threads[-1])
    version = version_of(simulation.plan.seed, node.name)
    for queue, options in QUEUES.items():
        if options is not None:
            limits: HandlerArguments = {
                "limit": version.limits.get(queue),
                "group_limit": version.group_limits.get(queue),
            }
            register(app, queue, {**options, **limits}, node, behaviours, version.schedules if queue == TICKS else None)
    if version.family is not None:
        app.limit(FAMILY, version.family)
    return app


def register(
    app: Penstock,
    queue: str,
    options: HandlerArguments,
    node: Node,
    behaviours: Behaviours | None,
    schedules: Sequence[Schedule] | None = None,
) -> None:
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
    app.listen(queue, handler, schedule=schedules, **options)


def units_of(queue: str) -> int:
    """Return the units that a run of a queue holds."""
    options = QUEUES.get(queue) or {}
    return 0 if options.get("concurrency") else options.get("size", 10)


def timeout_of(queue: str) -> float:
    """Return the timeout of a run of a queue (seconds)."""
    options: dict[str, Any] = {**(QUEUES.get(queue) or FAILURES)}
    return options["timeout"]
