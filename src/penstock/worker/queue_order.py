"""The order in which a worker serves its queues, and the requests of its next claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.model.handler import Handler
from penstock.model.job import Claim
from penstock.storage.base import MAX_BATCH, Request
from penstock.worker.pool import Pool
from penstock.worker.run import units_of

__all__ = ["batches_of", "plan"]


#: A queue that was passed over for this many rounds of full capacity goes first, whatever its priority, so that
#: no queue starves.
PASSED_OVER = 16


#: Runs that would wait for units about this long (seconds) are claimed ahead, but at most this number of jobs.
AHEAD_SECONDS, MAX_AHEAD = 0.01, 500
#: The time (seconds) over which the ended runs of a queue are counted.
RATE_WINDOW = 0.002


class QueueTurn:
    """The position of a queue in the order of service."""

    __slots__ = (
        "_counted", "_looked", "_rate", "batch", "handler", "limited", "passed_over", "queue", "served", "units",
    )  # fmt: skip

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.queue = handler.queue
        self.batch = handler.options.batch_size
        self.units = units_of(handler)
        self.served = 0
        self.passed_over = 0
        #: Whether the queue has limits, by the last answer of the storage.
        self.limited = False
        self._counted, self._looked, self._rate = 0, 0.0, 0.0

    def ahead(self, pool: Pool, now: float) -> int:
        """Return how many runs to claim beyond the free units, so that they are here when units are free.

        It is the number of runs that ended within `AHEAD_SECONDS`, by their recent rate. It is 0 where
        order is expected (`concurrency=1`), where a lost run is never repeated (`at_most_once`), and where the queue
        has limits: a claim counts for them, and would keep others from running while it waits here.
        """
        options = self.handler.options
        if self.limited or options.concurrency == 1 or options.at_most_once:
            return 0
        passed = now - self._looked
        if passed >= RATE_WINDOW:
            over = pool.over[self.queue]
            rate = (over - self._counted) / passed
            self._rate = rate if passed > 10 * RATE_WINDOW else (self._rate + rate) / 2
            self._counted, self._looked = over, now
        return min(int(self._rate * AHEAD_SECONDS), MAX_AHEAD // self.batch) - pool.waiting(self.queue)

    def full(self, pool: Pool) -> int:
        """Return how many runs of the queue there can be at once."""
        return self.handler.options.concurrency or pool.capacity // self.units

    @property
    def overdue(self) -> bool:
        """Whether the queue was passed over too often."""
        return self.passed_over >= PASSED_OVER


def in_order(turns: Iterable[QueueTurn]) -> list[QueueTurn]:
    """Sort queues: those passed over too often, then by priority, then by last service."""
    return sorted(turns, key=lambda turn: (not turn.overdue, -turn.handler.options.priority, turn.served))


def plan(turns: Sequence[QueueTurn], pool: Pool, now: float) -> list[Request]:
    """Return requests that fit into the free units, and a few ahead, from queues in order of service.

    Overdue queues get one run each; then the queues of the highest priority share the rest. Those of
    lower priority are asked in a later round, if these have too few jobs.
    """
    free, requests = pool.free, list[Request]()
    level: list[tuple[QueueTurn, int]] = []
    for turn in turns:
        fits, ahead = room(turn, pool, free), max(turn.ahead(pool, now), 0)
        if turn.overdue and fits >= 1:
            requests.append(Request(turn.queue, 1, turn.batch))
            free -= turn.units
        elif fits + ahead >= 1 and (not level or priority(level[0][0]) == priority(turn)):
            level.append((turn, ahead))
    for index, (turn, ahead) in enumerate(level):
        share = free // (len(level) - index)
        fits = max(room(turn, pool, max(share, min(turn.units, free))), 0)
        limit = min(fits + ahead, MAX_BATCH // turn.batch)
        if limit >= 1:
            requests.append(Request(turn.queue, limit, turn.batch))
            free -= min(fits, limit) * turn.units
    return requests


def priority(turn: QueueTurn) -> int:
    """Return the priority of a queue's handler."""
    return turn.handler.options.priority


def room(turn: QueueTurn, pool: Pool, free: int) -> int:
    """Return how many runs of a queue fit into these free units."""
    n = turn.handler.options.concurrency
    most = free // turn.units if n is None else pool.slots(n) - pool.running(turn.queue)
    return min(most, MAX_BATCH // turn.batch)


def batches_of(claims: Sequence[Claim]) -> dict[str, list[list[Claim]]]:
    """Group the claims of an answer by queue and run, in their order."""
    found: dict[str, list[list[Claim]]] = {}
    for claim in claims:
        batches = found.setdefault(claim.queue, [])
        if batches and batches[-1][0].batch == claim.batch:
            batches[-1].append(claim)
        else:
            batches.append([claim])
    return found
