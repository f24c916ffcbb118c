"""The shadow: the model of the state machine makes every call too, and every answer and event is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import astuple

from penstock.errors import QueueFull
from penstock.model.job import Snapshot, State
from penstock.storage.base import FIND_ORDER, EventRecord
from penstock.testing.simulation.network import Request
from penstock.testing.simulation.storages import Server
from sim.ledger import Ledger
from tests.model import Model

__all__ = ["Shadow"]

#: Verbs that the model does not have: waits, heartbeats, clocks, samples.
OUTSIDE = frozenset({"look", "open", "time", "beat", "workers", "announce", "history"})

#: Verbs that may end a job, or look for one that has ended.
WAITED = frozenset({
    "put", "settle", "cancel", "reap", "get", "counts", "find", "peek", "fire", "set_schedule",
})  # fmt: skip

#: Of how many jobs of a queue the histories are compared.
HISTORIES = 2

#: The queue whose jobs are not kept: there it matters who waits for a job.
BRIEF = "brief"


class Shadow:
    """Compares the storage with the model, call by call and event by event."""

    def __init__(self, ledger: Ledger, server: Server, clock_ms: Callable[[], int]) -> None:
        self._ledger = ledger
        self._server = server
        self._ms = clock_ms
        self.model = Model(clock_ms())
        #: The queues without jobs that a purge may have forgotten: their totals may have begun anew.
        self._forgotten: set[str] = set()
        #: The queues that have samples: their totals go on when they are forgotten.
        self._sampled: set[str] = set()
        #: The minute of the last samples.
        self._minute: int | None = None

    def before(self, request: Request) -> None:
        """Give the model the waiters of the storage: waiting is not part of the model."""
        if request.verb == "discard":
            self._read_waiters(self.model.all)
        elif request.verb == "claim":  # the most frequent one: it ends jobs of its own queues alone
            self._read_waiters([BRIEF] if any(each.queue == BRIEF for each in request.args[0]) else [])
        elif request.verb in WAITED:
            self._read_waiters([BRIEF])

    def _read_waiters(self, queues: Iterable[str]) -> None:
        for queue in queues:
            if queue in self.model.all:
                self.model.all[queue].waits = set(self._server.waited(queue))

    def observe(self, request: Request, answer: Any) -> None:
        """Make the call on the model, and compare the answers."""
        verb, args = request.verb, request.args
        if verb in OUTSIDE:
            return
        self.model.now = self._ms()
        self.model._note_clock()  # by itself it looks at the clock when a job starts
        if verb == "record_stats":
            if not isinstance(answer, Exception):
                self._sample()
            return
        if isinstance(answer, QueueFull):
            try:
                answer = self.model.put(*args)
            except QueueFull as full:
                self._compare(request, str(full), str(answer))
            else:
                self._ledger.fault(f"a put was refused that the model takes: {answer}")
            return
        if isinstance(answer, Exception):
            return
        if verb == "find":
            queue, state = args[0], args[1] if len(args) > 1 else None
            wanted = _listing(self.model.find(queue, state))  # it ends the jobs that expire
            if answer.cursor is None and (len(args) < 3 or args[2] is None):  # a whole listing
                self._compare(request, wanted, _listing(answer.jobs))
            return
        try:
            wanted = getattr(self.model, verb)(*args)
        except AssertionError as broken:  # an invariant of the model
            self._ledger.fault(f"the model finds a broken invariant after {verb}: {broken}")
            return
        except QueueFull as full:
            self._ledger.fault(f"a put was taken that the model refuses: {full}")
            return
        if verb == "purge":
            self._forgotten |= {
                queue
                for queue in args[0]
                if queue in self.model.all and not self.model.all[queue].jobs and queue not in self._sampled
            }
        if verb == "delete_queue":
            self._sampled.discard(args[0])
        if verb == "claim":
            self._compare(request, wanted.claims, answer.claims)
            self._compare(request, wanted.tick_at, answer.tick_at)
        elif verb == "reap":
            self._compare(request, sorted(map(repr, wanted)), sorted(map(repr, answer)))
        else:
            self._compare(request, wanted, answer)

    def _sample(self) -> None:
        """Do with the model what the first sample of a minute does: it reads all queues, so due jobs end or enter."""
        minute = self.model.now // 60_000
        if minute != self._minute:
            self._minute = minute
            for name, queue in self.model.all.items():
                if queue.jobs:
                    self._sampled.add(name)
                self.model._expire(name)
                self.model._promote(queue)

    def repeat(self, verb: str, args: tuple[Any, ...]) -> None:
        """Make a call of the checks on the model too: also a read ends the jobs that expire."""
        if verb not in OUTSIDE:
            self.model.now = self._ms()
            getattr(self.model, verb)(*args)

    def _compare(self, request: Request, wanted: Any, found: Any) -> None:
        if wanted != found:
            jobs = tuple((each.queue, each.id) for each in _differing(wanted, found))
            self._ledger.fault(f"{request.verb} differs from the model: {_difference(wanted, found)}", *jobs)

    def compare_queue(
        self, queue: str, find: Callable[[str], list[Any]], ask: Callable[[str, tuple[Any, ...]], Any]
    ) -> None:
        """Compare all jobs of a queue: a difference may be there for long before an answer shows it."""
        if queue not in self.model.all:
            return
        self.model.now = self._ms()
        if queue == BRIEF:
            self._read_waiters([queue])
        try:
            self.model.check()
        except AssertionError as broken:
            self._ledger.fault(f"the model finds a broken invariant: {broken}")
        wanted, found = _listing(self.model.find(queue)), _listing(find(queue))
        if wanted != found:
            jobs = tuple((each.queue, each.id) for each in _differing(wanted, found))
            self._ledger.fault(f"the jobs of a queue differ from the model: {_difference(wanted, found)}", *jobs)
        self._compare_histories(queue, ask)
        self._compare_stats(queue, ask)

    def _compare_histories(self, queue: str, ask: Callable[[str, tuple[Any, ...]], Any]) -> None:
        """Compare the attempts and log lines of the jobs that ran last and have any."""
        jobs = [job for job in self.model.all[queue].jobs.values() if job.histories.attempts or job.histories.log]
        for job in jobs[-HISTORIES:]:
            for history in ("attempts", "log"):
                args = (queue, job.id, history)
                wanted, found = self.model.read(*args), ask("read", args)
                if wanted != found:
                    self._ledger.fault(
                        f"the {history} of a job differ from the model: want {wanted}, got {found}", (queue, job.id)
                    )

    def _compare_stats(self, queue: str, ask: Callable[[str, tuple[Any, ...]], Any]) -> None:
        """Compare error groups, their jobs, and totals; those of a forgotten queue may have begun anew."""
        wanted, found = self.model.error_groups(queue).groups, ask("error_groups", (queue,)).groups
        if wanted != found:
            self._ledger.fault(f"the error groups of {queue} differ from the model: {_difference(wanted, found)}")
        for group in wanted[:1]:
            mine = [job.id for job in self.model.group_jobs(queue, group.key).jobs]
            theirs = [job.id for job in ask("group_jobs", (queue, group.key, None, 1000)).jobs]
            if mine != theirs:
                self._ledger.fault(f"the jobs of an error group of {queue} differ from the model: {mine} {theirs}")
        [most], [stats] = self.model.stats([queue]), ask("stats", ([queue],))
        totals = list(zip(astuple(stats.sample.totals), astuple(most.sample.totals), strict=True))
        if (
            any(counted > possible for counted, possible in totals)
            or (queue not in self._forgotten and any(counted < possible for counted, possible in totals))
            or stats.sample.counts != most.sample.counts
        ):
            self._ledger.fault(f"the totals of {queue} differ from the model: want {most}, got {stats}")

    def compare_totals(self, ask: Callable[[str, tuple[Any, ...]], Any]) -> None:
        """Compare the totals of all queues, also of those that were forgotten."""
        self.model.now = self._ms()
        for queue in sorted(self._sampled):
            self._compare_stats(queue, ask)

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
