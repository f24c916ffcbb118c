"""What to ask the storage for: as much as there is room for, the right queues first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.model.handler import Handler
from penstock.model.job import Claim
from penstock.storage.base import MAX_BATCH, Request
from penstock.worker.pool import Pool
from penstock.worker.run import units_of

__all__ = ["batches_of", "plan"]


#: A queue that was passed over for so many times what fits at once goes first, whatever its priority: no queue
#: starves.
PASSED_OVER = 16


#: Runs that would have to wait for about this long are claimed ahead, but not more than so many jobs.
AHEAD_SECONDS, MAX_AHEAD = 0.01, 500
#: The time over which the ended runs of a queue are counted (seconds).
RATE_WINDOW = 0.002


class QueueTurn:
    """A queue in the order of service."""

    __slots__ = ("_counted", "_looked", "_rate", "batch", "handler", "passed_over", "queue", "served", "units")

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.queue = handler.queue
        self.batch = handler.options.batch_size
        self.units = units_of(handler)
        self.served = 0
        self.passed_over = 0
        self._counted, self._looked, self._rate = 0, 0.0, 0.0

    def ahead(self, pool: Pool, now: float) -> int:
        """How many runs to claim beyond what there is room for: those that get their turn within moments.

        They are as many as have ended in such a time of late, so that the next ones are on their way
        while these run. There are none where order is expected, or where a lost run is never repeated.
        """
        options = self.handler.options
        if options.concurrency == 1 or options.at_most_once:
            return 0
        passed = now - self._looked
        if passed >= RATE_WINDOW:
            over = pool.over[self.queue]
            rate = (over - self._counted) / passed
            self._rate = rate if passed > 10 * RATE_WINDOW else (self._rate + rate) / 2
            self._counted, self._looked = over, now
        return min(int(self._rate * AHEAD_SECONDS), MAX_AHEAD // self.batch) - pool.waiting(self.queue)

    def full(self, pool: Pool) -> int:
        """How many of its runs there can be at once."""
        return self.handler.options.concurrency or pool.capacity // self.units

    @property
    def overdue(self) -> bool:
        return self.passed_over >= PASSED_OVER


def in_order(seats: Iterable[QueueTurn]) -> list[QueueTurn]:
    """Those passed over too often, then by priority, then by last service."""
    return sorted(seats, key=lambda seat: (not seat.overdue, -seat.handler.options.priority, seat.served))


def plan(seats: Sequence[QueueTurn], pool: Pool, now: float) -> list[Request]:
    """Requests that fit into what is free, and a few ahead, from queues in order of service.

    Overdue queues get one run each; then the queues of the highest priority share the rest. Lower
    ones are asked in a later round, when these turn out to have too little.
    """
    free, requests = pool.free, list[Request]()
    level: list[tuple[QueueTurn, int]] = []
    for seat in seats:
        fits, ahead = room(seat, pool, free), max(seat.ahead(pool, now), 0)
        if seat.overdue and fits >= 1:
            requests.append(Request(seat.queue, 1, seat.batch))
            free -= seat.units
        elif fits + ahead >= 1 and (not level or priority(level[0][0]) == priority(seat)):
            level.append((seat, ahead))
    for index, (seat, ahead) in enumerate(level):
        share = free // (len(level) - index)
        fits = max(room(seat, pool, max(share, min(seat.units, free))), 0)
        limit = min(fits + ahead, MAX_BATCH // seat.batch)
        if limit >= 1:
            requests.append(Request(seat.queue, limit, seat.batch))
            free -= min(fits, limit) * seat.units
    return requests


def priority(seat: QueueTurn) -> int:
    return seat.handler.options.priority


def room(seat: QueueTurn, pool: Pool, free: int) -> int:
    """How many runs of a queue fit now."""
    n = seat.handler.options.concurrency
    most = free // seat.units if n is None else pool.slots(n) - pool.running(seat.queue)
    return min(most, MAX_BATCH // seat.batch)


def batches_of(claims: Sequence[Claim]) -> dict[str, list[list[Claim]]]:
    """The claims of each queue that run together, in the order of the answer."""
    found: dict[str, list[list[Claim]]] = {}
    for claim in claims:
        batches = found.setdefault(claim.queue, [])
        if batches and batches[-1][0].batch == claim.batch:
            batches[-1].append(claim)
        else:
            batches.append([claim])
    return found
