"""A random walk over the verbs of the storage, in queues of its own, with few ids."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from penstock.errors import ErrorKind, JobError, PenstockError
from penstock.model.history import NewLine
from penstock.model.job import NewJob, State, Update
from penstock.model.limit import Limit
from penstock.storage.base import (
    Cancel,
    ClaimRef,
    Complete,
    Fail,
    Release,
    Report,
    Request,
    Resolution,
    Retried,
    Settlement,
    Stall,
)
from penstock.storage.limiting import Scope
from sim.work.client import Client
from sim.work.sequences import SCHEDULES, SEQUENCES

__all__ = ["WALKED", "Walker"]

#: The queues of the walk: two of one family, its fail queue, and two for sequences alone; the last has plain jobs only.
WALKED = ("walk", "walk/side", "walk/failures", "walk/calm", "walk/rare")
CHOSEN = ("walk", "walk", "walk", "walk/side", "walk/side", "walk/failures")

IDS, GROUPS = ("a", "b", "c", "d"), ("g", "h")

#: The number of steps of a walk.
STEPS = 170

ERRORS = (
    JobError("A", "a", key="0123456789abcdef").encode(),
    JobError("B", "b", ErrorKind.TIMEOUT, key="fedcba9876543210").encode(),
    b"",
)
SCOPES = (
    Scope("family", "walk"),
    *(Scope("queue", queue) for queue in WALKED[:2]),
    *(Scope("groups", queue) for queue in WALKED[:2]),
    *(Scope("group", WALKED[0], group) for group in GROUPS),
)

#: What a step does, and how often.
WEIGHTS = {
    "put_one": 14, "put_many": 4, "put_bounded": 8, "put_fresh": 7, "claim": 18, "settle_one": 9, "settle_many": 5,
    "complete_all": 6, "settle_again": 4, "renew": 3, "reap": 5, "cancel": 6, "discard": 2, "revive": 3, "purge": 4,
    "pause": 2, "limit": 6, "delete": 0.6, "set_ttl": 1, "report": 4, "read": 8,
    "sequence": 24,
}  # fmt: skip


class Walker(Client):
    """Makes random calls of a storage as long as there are faults, then runs all jobs that are left."""

    async def run(self) -> None:
        """Walk, then undo and run what is left."""
        random, until = self.random, self.node.scheduler.now + self.shared.seconds
        pause = STEPS / self.shared.seconds
        #: The claims so far, and the settlements.
        self.held: list[ClaimRef] = []
        self._settled: list[Settlement] = []
        self._deck: list[Callable[[Any, str], Awaitable[None]]] = []
        self.storage: Any = await self.patient(self.app.opened)
        while not self.shared.stopping and self.node.scheduler.now < until:
            await asyncio.sleep(random.expovariate(pause))
            [verb] = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            with contextlib.suppress(PenstockError, ValueError):
                await getattr(self, f"_{verb}")(random.choice(CHOSEN))
        await self._run_rest()

    # puts -----------------------------------------------------------------------------------------

    def _job(self, queue: str, id: str | None = None) -> NewJob:
        random = self.random
        group = random.choice([None, None, *GROUPS])
        options: dict[str, Any] = {}
        if random.random() < 0.3:
            options["delay"] = random.choice([0, 1, 300, 1000, 3000])
        if random.random() < 0.2:
            options["start_within"] = random.choice([1, 300, 1500])
        if random.random() < 0.3:
            options["window"] = random.choice([1000, 4000])
        if random.random() < 0.2:
            options |= {"max_wait": random.choice([500, 2000]), "delay": 1000}
        return NewJob(
            queue=queue,
            id=id or random.choice(IDS),
            payload=b"%d" % random.randrange(3),
            group=group,
            priority=0 if group else random.choice([0, 0, 1, -1]),
            update=self._update() if random.random() < 0.6 else None,
            cost=random.choice([1, 1, 2, 5]),
            **options,
        )

    def _update(self) -> Update:
        random = self.random
        return Update(
            payload=random.random() < 0.5,
            run_at=random.choice([True, False, "if_later", "if_earlier"]),
            reset_counts=random.choice([None, True, False]),
            bounds=random.random() < 0.5,
            priority=random.random() < 0.5,
            group=random.random() < 0.5,
        )

    async def _put_one(self, queue: str) -> None:
        await self.storage.put([self._job(queue)])

    async def _put_many(self, queue: str) -> None:
        await self.storage.put([self._job(queue) for _ in range(self.random.randint(2, 4))])

    async def _put_bounded(self, queue: str) -> None:
        """Put jobs into a queue in which few more jobs may wait than do."""
        counts = await self.storage.counts(queue)
        waiting = sum(counts[state] for state in (State.QUEUED, State.SCHEDULED, State.RETRYING))
        most = max(waiting + self.random.choice([-1, 0, 0, 1, 2]), 1)
        await self.storage.put([self._job(queue) for _ in range(self.random.randint(1, 3))], most)

    async def _put_fresh(self, queue: str) -> None:
        """Put jobs with new ids, plain ones or not, alone or together."""
        random = self.random
        group = random.choice([None, *GROUPS])
        for _ in range(random.choice([1, 1, 3])):
            jobs = [
                NewJob(queue=queue, id=self.new_id(), payload=b"f", fresh=True, group=group, cost=random.choice([1, 3]))
                for _ in range(random.choice([1, 2]))
            ]
            await self.storage.put(jobs)

    # claims ---------------------------------------------------------------------------------------

    def new_token(self) -> str:
        """Return a token for a claim."""
        return f"{self.random.getrandbits(64):016x}"

    async def _claim(self, queue: str) -> None:
        random = self.random
        queues = random.choice([[queue], list(WALKED)])
        batch = random.choice([1, 1, 1, 2])
        await self.claim(queues, random.choice([600, 1500, 6000]), random.randint(1, 4), batch)

    async def claim(self, queues: Sequence[str], lease: int, most: int, batch: int = 1) -> list[ClaimRef]:
        """Claim jobs of queues, and remember the claims."""
        requests = [Request(queue, most, batch) for queue in queues]
        claimed = await self.storage.claim(requests, "walker", lease, self.new_token())
        refs = [ClaimRef(claim.queue, claim.id, claim.token) for claim in claimed.claims]
        self.held += refs
        return refs

    def some(self, last: int = 8) -> ClaimRef:
        """Return one of the last claims: its token may be stale."""
        return self.random.choice(self.held[-last:])

    def _resolution(self) -> Resolution:
        random = self.random
        ttl = random.choice([0, 0, 400, 400, 3000])
        match random.choice(["complete", "complete", "retried", "retried", "retried", "fail", "cancel", "back"]):
            case "complete":
                return Complete(b"r", ttl)
            case "fail":
                return Fail(random.choice(ERRORS), ttl, ran=random.random() < 0.7)
            case "cancel":
                return Cancel(ttl, ran=random.random() < 0.7)
            case "back":
                return random.choice([Release(), Stall()])
            case _:
                return Retried(
                    delay=random.choice([0, 1, 500, 2000, 4000]),
                    count=random.choice(["retries", "timeouts", None]),
                    position=random.choice(["keep", "due"]),
                    solo=random.random() < 0.2,
                    error=random.choice(ERRORS),
                    pause=random.choice([None, None, None, None, "group", "queue"]),
                )

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle runs, and remember how."""
        self._settled += settlements
        if settlements:
            await self.storage.settle(settlements)

    def _settlement(self, held: ClaimRef) -> Settlement:
        return Settlement(held.queue, held.id, held.token, self._resolution())

    async def _settle_one(self, queue: str) -> None:
        await self.settle([self._settlement(self.some(4))] if self.held else [])

    async def _settle_many(self, queue: str) -> None:
        count = self.random.randint(2, 4) if self.held else 0
        await self.settle([self._settlement(self.some()) for _ in range(count)])

    async def _complete_all(self, queue: str) -> None:
        """Complete the last claims together: of some jobs they are stale, of others their results are not kept."""
        ttl = self.random.choice([0, 500])
        held = [each for each in self.held[-6:] if each.queue == queue]
        await self.settle([Settlement(each.queue, each.id, each.token, Complete(b"", ttl)) for each in held])

    async def _settle_again(self, queue: str) -> None:
        if self._settled:
            await self.storage.settle([self.random.choice(self._settled[-6:])])

    async def _renew(self, queue: str) -> None:
        await self.storage.renew("walker", self.held[-5:], self.random.choice([500, 4000]))

    async def _reap(self, queue: str) -> None:
        await self.storage.reap(WALKED)

    async def _report(self, queue: str) -> None:
        await self.report([self.some()] if self.held else [])

    async def report(self, refs: Sequence[ClaimRef]) -> None:
        """Report progress and lines of runs, whose jobs may have others by now, at times twice."""
        lines = (NewLine("one", "info", 0), NewLine("two", "warning", 1))
        first = self.random.choice([1, 2])
        reports = [
            Report(queue=ref.queue, id=ref.id, token=ref.token, progress=b"p", lines=lines, first=first) for ref in refs
        ]
        for _ in range(self.random.choice([1, 2]) if reports else 0):
            await self.storage.report(reports)

    async def _sequence(self, queue: str) -> None:
        """Make the next of the sequences: all of them come before one comes again."""
        if not self._deck:
            self._deck = self.random.sample(SEQUENCES, len(SEQUENCES))
        await self._deck.pop()(self, "walk/calm" if self.random.random() < 0.6 else queue)

    # operators ------------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        return self.random.sample(IDS, self.random.choice([1, 1, 2]))

    async def _cancel(self, queue: str) -> None:
        """Cancel jobs, at times twice: often those that run."""
        random = self.random
        ids = self._ids()
        if self.held and random.random() < 0.5:
            queue, ids = self.some(4).queue, [self.some(4).id]
        for _ in range(random.choice([1, 2])):
            mode = random.choice(["refuse", "forget", "signal", "signal", "kill"])
            await self.storage.cancel(queue, ids, mode, random.choice([0, 500, 9000]))

    async def _discard(self, queue: str) -> None:
        state = self.random.choice([None, None, *State])
        await self.storage.discard(queue, self._ids(), state, None)

    async def _revive(self, queue: str) -> None:
        await self.storage.revive(queue, self._ids(), self.random.random() < 0.5)

    async def _purge(self, queue: str) -> None:
        await self.storage.purge(WALKED)

    async def _pause(self, queue: str) -> None:
        random = self.random
        now, group = await self.storage.time(), random.choice([None, *GROUPS])
        until = now + random.choice([1, 500, 1500])
        await self.storage.set_pause(queue, random.random() < 0.7, until, "walker", group)

    async def _limit(self, queue: str) -> None:
        scope = self.random.choice(SCOPES)
        await self.set_limit(scope, self._draw_limit(scope) if self.random.random() < 0.75 else None)

    async def set_limit(self, scope: Scope, limit: Limit | None) -> None:
        """Set or remove a limit."""
        version = (await self.storage.get_limit(scope)).version
        rule = limit.rule("group" if scope.kind == "groups" else scope.kind, 0) if limit else None
        await self.storage.set_limit(scope, rule, b"", version)

    def _draw_limit(self, scope: Scope) -> Limit:
        random = self.random
        options: dict[str, Any] = {}
        if random.random() < 0.4:
            options = {"rate": random.choice(["1/s", "2/s", "5/s"]), "burst": random.choice([1, 2])}
            options["by"] = random.choice(["starts", "cost"])
        if scope.kind in ("groups", "group"):
            options |= {"weight": random.choice([1, 2, 3]), "ordered": random.choice([None, False])}
        return Limit(concurrency=random.choice([1, 1, 2, 3]), **options)

    async def _delete(self, queue: str) -> None:
        await self.storage.delete_queue(queue, self.random.random() < 0.5)

    async def _set_ttl(self, queue: str) -> None:
        await self.storage.set_ttl(queue, self.random.choice(IDS), self.random.choice([0, 300, 9000]))

    async def _read(self, queue: str) -> None:
        storage, id = self.storage, self.random.choice(IDS)
        match self.random.randrange(10):
            case 0:
                await storage.get(queue, IDS)
            case 1:
                await storage.why(queue, id)
            case 2:
                await storage.find(queue, self.random.choice([None, State.RUNNING, State.RUNNING, *State]))
            case 3:
                await storage.error_groups(queue)
            case 4:
                await storage.peek(queue)
            case 5:
                await storage.get_limit(self.random.choice(SCOPES))
            case 6:
                await storage.limits(queue)
            case 7 | 8:
                await storage.read(queue, id, self.random.choice(["attempts", "log"]))
            case _:
                await storage.counts(queue)

    # the end --------------------------------------------------------------------------------------

    async def _run_rest(self) -> None:
        """Remove all limits and pauses, and complete all jobs until none is left."""
        for scope in SCOPES:
            await self.patient(partial(self.set_limit, scope, None))
        for queue in WALKED:
            for name in SCHEDULES:
                await self.patient(partial(self.app.queue(queue).schedules.remove, name))
        for queue in WALKED:
            for group in (None, *GROUPS):
                await self.patient(partial(self.storage.set_pause, queue, False, None, "", group))
        while True:
            try:
                await self._complete_rest()
                counts = [await self.storage.counts(queue) for queue in WALKED]
            except PenstockError:
                await asyncio.sleep(0.5)
                continue
            kept = (State.COMPLETED, State.FAILED, State.CANCELLED)
            left = any(count for each in counts for state, count in each.items() if state not in kept)
            if self.shared.stopping and not left:
                return
            await asyncio.sleep(0.5 if left else 4.0)  # a put that is late may still arrive

    async def _complete_rest(self) -> None:
        await self.storage.reap(WALKED)
        requests = [Request(queue, 10) for queue in WALKED]
        claimed = await self.storage.claim(requests, "walker", 600, self.new_token())
        ended = [Settlement(claim.queue, claim.id, claim.token, Complete(b"", 500)) for claim in claimed.claims]
        if ended:
            await self.storage.settle(ended)
