"""The shadow: the model of the state machine makes every call too, and every answer and event is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.model.job import Snapshot, State
from penstock.storage.base import FIND_ORDER, EventRecord
from penstock.testing.simulation.network import Request
from penstock.testing.simulation.storages import Server
from sim.ledger import Ledger
from tests.model import Model

__all__ = ["Shadow"]

#: Verbs that the model does not have: waits, heartbeats, clocks.
OUTSIDE = frozenset({"look", "open", "time", "beat", "workers", "announce", "set_paused"})

#: The queue whose jobs are not kept: there it matters who waits for a job.
BRIEF = ("brief",)


class Shadow:
    """Compares the storage with the model, call by call and event by event."""

    def __init__(self, ledger: Ledger, server: Server, clock_ms: Callable[[], int]) -> None:
        self._ledger = ledger
        self._server = server
        self._ms = clock_ms
        self.model = Model(clock_ms())

    def before(self, request: Request) -> None:
        """Give the model the waiters of the storage: waiting is not part of the model."""
        if request.verb in ("put", "settle", "cancel", "discard", "claim", "reap", "get", "counts", "find", "peek"):
            for queue in self.model.all:
                if queue in BRIEF or request.verb == "discard":
                    self.model.all[queue].waits = set(self._server.waited(queue))

    def observe(self, request: Request, answer: Any) -> None:
        """Make the call on the model, and compare the answers."""
        verb, args = request.verb, request.args
        if verb == "set_paused":
            self.model.now = self._ms()
            self._compare(request, self.model.set_paused(*args), answer)
        if verb in OUTSIDE:
            return
        self.model.now = self._ms()
        if isinstance(answer, Exception):
            return
        if verb == "find":
            queue, state = args[0], args[1] if len(args) > 1 else None
            if len(args) < 3 or args[2] is None:
                wanted = _listing(self.model.find(queue, state)[: len(answer.jobs)])
                self._compare(request, wanted, _listing(answer.jobs))
            return
        if verb == "paused":
            queue = self.model.all.get(args[0])
            self._compare(request, None if queue is None else queue.paused, answer)
            return
        wanted = getattr(self.model, verb)(*args)
        if verb == "claim":
            self._compare(request, wanted.claims, answer.claims)
        elif verb == "reap":
            self._compare(request, sorted(map(repr, wanted)), sorted(map(repr, answer)))
        else:
            self._compare(request, wanted, answer)

    def _compare(self, request: Request, wanted: Any, found: Any) -> None:
        if wanted != found:
            jobs = tuple((each.queue, each.id) for each in _differing(wanted, found))
            self._ledger.fault(f"{request.verb} differs from the model: {_difference(wanted, found)}", *jobs)

    def compare_all(self, find: Callable[[str], list[Any]]) -> None:
        """Compare all jobs of all queues: a difference may be there for long before an answer shows it."""
        self.model.now = self._ms()
        for queue in list(self.model.all):
            if queue in BRIEF:
                self.model.all[queue].waits = set(self._server.waited(queue))
            wanted, found = _listing(self.model.find(queue)), _listing(find(queue))
            if wanted != found:
                jobs = tuple((each.queue, each.id) for each in _differing(wanted, found))
                self._ledger.fault(f"the jobs of a queue differ from the model: {_difference(wanted, found)}", *jobs)

    def compare_events(self, verb: str, found: list[EventRecord]) -> None:
        """Compare the events of the last call."""
        wanted, self.model.events = self.model.events, []
        mine = sorted(map(_event, wanted))
        theirs = sorted(_event(event) for event in found if event.name != "queue_deleted")
        if mine != theirs:
            jobs = tuple({(event.queue, event.id): None for event in (*wanted, *found)})
            self._ledger.fault(f"the events of {verb} differ from the model: {_difference(mine, theirs)}", *jobs)


def _event(event: EventRecord) -> tuple[Any, ...]:
    return event.name, event.queue, event.id, event.attempt


def _differing(wanted: Any, found: Any) -> list[Any]:
    if not (isinstance(wanted, list) and isinstance(found, list)):
        return []
    both = [*wanted, *found]
    return [each for each in both if hasattr(each, "queue") and (each not in wanted or each not in found)]


def _listing(jobs: list[Snapshot]) -> list[Snapshot]:
    """Return jobs in an order that both sides agree on: runs of the same millisecond have none."""
    held = (State.RUNNING, State.BLOCKED)
    return sorted(jobs, key=lambda job: (FIND_ORDER.index(job.state), job.id if job.state in held else ""))


def _difference(wanted: Any, found: Any) -> str:
    if isinstance(wanted, list) and isinstance(found, list):
        wanted, found = [w for w in wanted if w not in found], [f for f in found if f not in wanted]
    return f"want {wanted!r}, got {found!r}"
