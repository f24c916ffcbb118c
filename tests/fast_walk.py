"""Random walk over two storages that differ only in `fast`: every answer must be the same, times aside.

It runs on the real clock, because some fast paths need it. So two calls never get the same times: times are compared in
steps of ten minutes, and each step of the walk begins a few milliseconds after the last, so that no order depends on
the speed of the machine. A delay, a lease or a retention is either over at the next step, or lasts an hour and more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import msgspec

from penstock.model.job import NewJob, State, Update
from penstock.model.limit import Limit, Rate, Rule
from penstock.storage.base import (
    CANCEL_MODES,
    Cancel,
    Claimed,
    ClaimRef,
    Complete,
    EventRecord,
    Fail,
    Release,
    Request,
    Resolution,
    Retried,
    Settlement,
    Stall,
    Storage,
)
from penstock.storage.limiting import Limiting, Scope
from penstock.storage.scheduling import ScheduleRecord
from penstock.testing.conformance.case import find_all
from tests.support import report_progress

__all__ = ["FastWalk", "Pair"]

QUEUES = ("q", "q/side", "other", "plain")
#: The queues with limits, each a family of its own. Jobs of the second have no groups and do
#: not expire, so that its claims take the fast path.
LIMITED, PLAIN = "other", "plain"
IDS = ("a", "b", "c", "d", "e")
GROUPS = ("g", "h", "nul\0")
WORKERS = ("v", "w")
HOUR = 3_600_000
#: Over at the next step, or not during the walk. Delays, offsets and leases that last differ, so that none are equal.
MOMENT = 1
TTLS = (0, MOMENT, HOUR, HOUR, None)
DELAYS = (None, None, None, 0, HOUR)
OFFSETS = (-2 * HOUR, 2 * HOUR, 4 * HOUR)
#: Seconds between two steps: longer than a `MOMENT`.
PAUSE = 0.003
#: All that can be read of one queue is compared after every third step.
READ_EVERY = 3
#: Fields that are times: all of them in ms.
TIMES = frozenset(
    {
        "created",
        "run_at",
        "finished",
        "expires",
        "lease",
        "at",
        "since",
        "look_at",
        "start_by",
        "tick_at",
        "started",
        "now",
    }
    | {"until", "opens", "changed_at"}
)
STEP = 600_000

Call = Callable[[Storage], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Pair:
    """A storage with fast paths and one without."""

    fast: Storage
    slow: Storage


class EventReader:
    """Reader of the events of a storage, from its construction on, for a comparison job by job."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._events: list[EventRecord] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self._storage.events():
            self._events.append(event)

    async def take(self, mark: str) -> dict[tuple[str, str], list[EventRecord]]:
        """Return the events of each job since the last call: those before an announcement with this id."""
        async with asyncio.timeout(30):
            while not any(event.id == mark for event in self._events):
                await self._storage.announce([EventRecord("idle", "", mark, 0)])
                await asyncio.sleep(PAUSE)
        taken, self._events = self._events, []
        jobs: dict[tuple[str, str], list[EventRecord]] = {}
        for event in taken:
            if event.name != "idle":
                jobs.setdefault((event.queue, event.id), []).append(event)
        return jobs

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


class FastWalk:
    """A seeded walk; `blocking` is a pair on the same data for puts as the sync client makes them.

    With `listens`, the events of both storages are compared after every step.
    """

    def __init__(self, seed: int, pair: Pair, blocking: Pair | None = None, *, listens: bool = False) -> None:
        self.random = Random(seed)
        self.listens = listens
        self.pair = pair
        self.blocking = blocking
        self.claims: list[ClaimRef] = []
        self.settled: list[Settlement] = []
        self.made = 0
        #: The names of the steps taken and their arguments, for the message of a difference.
        self.steps: list[str] = []

    async def walk(self, steps: int) -> None:
        """Take this many steps; raises `AssertionError` at the first answer or event that differs."""
        weighted = [
            (self.put_one, 5), (self.put_fresh, 6), (self.put_many, 4), (self.put_successor, 3), (self.claim, 6),
            (self.open_claim, 3),
            (self.settle_one, 4), (self.settle_many, 4), (self.settle_claim, 4), (self.settle_again, 2),
            (self.settle_with_a_stale_token, 1), (self.renew, 2), (self.report, 1), (self.reap, 2), (self.cancel, 2),
            (self.revive, 1), (self.discard, 1), (self.pause, 1), (self.set_ttl, 1), (self.purge, 1),
            (self.delete_queue, 0.2), (self.limit, 1.5), (self.pause_group, 1),
        ]  # fmt: skip
        rules, weights = zip(*weighted, strict=True)
        for queue in QUEUES[1:]:
            await self.add_schedule(queue)
        readers = (EventReader(self.pair.fast), EventReader(self.pair.slow)) if self.listens else None
        try:
            if readers:
                await self.compare_events(*readers, "begin")
            for step in range(steps):
                await asyncio.sleep(PAUSE)
                await self.random.choices(rules, weights)[0]()
                if readers:
                    await self.compare_events(*readers, f"step {step}")
                if step % READ_EVERY == 0:
                    await asyncio.sleep(PAUSE)
                    await self.compare_reads(self.random.choice(QUEUES))
            for queue in QUEUES:
                await self.compare_reads(queue)
        finally:
            for reader in readers or ():
                await reader.close()

    async def compare_events(self, fast: EventReader, slow: EventReader, mark: str) -> None:
        """Compare the events of the last step; those of different jobs may come in another order."""
        got, want = await fast.take(mark), await slow.take(mark)
        now = round(time.time() * 1000)
        if normalized(got, now) != normalized(want, now):
            raise AssertionError(f"events of {self.steps[-1]}:\n fast {got}\n slow {want}")

    async def add_schedule(self, queue: str) -> None:
        """Add a schedule, so that claims answer its next tick."""
        due = round(time.time() * 1000) + 2 * HOUR
        record = ScheduleRecord(queue=queue, name="s", spec=b"", cursor=0, next=due)

        async def added(storage: Any) -> bool:
            return await storage.set_schedule(record, 0) is not None

        await self.both(f"set_schedule({record})", added)

    async def both(self, step: str, fast: Call, slow: Call | None = None, pair: Pair | None = None) -> Any:
        """Make a call on both storages and compare the answers; return that of the storage without fast paths."""
        self.steps.append(step)
        pair = pair or self.pair
        got = await fast(pair.fast)
        want = await (slow or fast)(pair.slow)
        now = round(time.time() * 1000)
        if normalized(got, now) != normalized(want, now):
            last = "\n".join(self.steps[-12:])
            raise AssertionError(f"{step}:\n fast {got}\n slow {want}\nafter\n{last}")
        return want

    async def compare_reads(self, queue: str) -> None:
        await self.both(f"find_all({queue!r})", lambda s: find_all(s, queue))
        await self.both(f"counts({queue!r})", lambda s: s.counts(queue))
        await self.both(f"peek({queue!r})", lambda s: s.peek(queue))
        await self.both(f"get({queue!r}, {IDS})", lambda s: s.get(queue, IDS))
        scope = Scope("group", queue, self.random.choice(GROUPS))
        await self.both(f"get_limit({scope})", lambda s: cast(Limiting, s).get_limit(scope))
        id = self.random.choice(IDS)
        await self.both(f"why({queue!r}, {id!r})", lambda s: s.why(queue, id))

    # putting -----------------------------------------------------------------------------------------

    def job(
        self, queue: str, *, delays: Sequence[int | None] = DELAYS, expiries: Sequence[int] = (), **fields: Any
    ) -> NewJob:
        """Make a job with random options.

        A delay of a `MOMENT` is for a call of one job: a call of several may be sent in parts, at different times.
        The same holds for an expiry.
        """
        draw, group = self.random, self.random.choice([None, None, *GROUPS]) if queue != PLAIN else None
        moved = draw.choice([None, None, draw.choice(OFFSETS)])
        options: dict[str, Any] = {
            "id": draw.choice(IDS),
            "payload": draw.choice([b"", b"1", b"\x00\xff"]),
            "headers": draw.choice([b"", b"", b"h"]),
            "bounds": draw.choice([b"", b"", b"l"]),
            "group": group,
            "priority": 0 if group else draw.choice([0, 0, 1, -1]),
            "update": draw.choice([None, None, self.update()]),
            "run_at": None if moved is None else round(time.time() * 1000) + moved,
            "delay": draw.choice(delays) if moved is None else None,
            "start_within": draw.choice([None, None, None, 6 * HOUR, *expiries]) if queue != PLAIN else None,
        }
        return NewJob(queue=queue, **(options | fields))

    def update(self) -> Update:
        draw = self.random
        return Update(
            payload=draw.random() < 0.5,
            run_at=draw.choice([True, False, "if_later", "if_earlier"]),
            reset_counts=draw.choice([None, True, False]),
            bounds=draw.random() < 0.5,
            priority=draw.random() < 0.5,
            group=draw.random() < 0.5,
        )

    def plain(self, queue: str, **fields: Any) -> NewJob:
        """Make a job of only an id and a payload, or with these fields too."""
        self.made += 1
        options: dict[str, Any] = {"id": f"fresh{self.made}", "payload": b"f", "fresh": True}
        return NewJob(queue=queue, **(options | fields))

    async def put(self, jobs: Sequence[NewJob]) -> None:
        pair = self.blocking if self.random.random() < 0.3 and all(job.waiter is None for job in jobs) else None
        await self.both(f"put({jobs})", lambda s: s.put(jobs), pair=pair)

    async def put_one(self) -> None:
        await self.put([self.job(self.random.choice(QUEUES), delays=(*DELAYS, MOMENT), expiries=(MOMENT,))])

    async def put_fresh(self) -> None:
        """Put plain jobs of one queue, some with a waiter or a group: one job, a few, or enough for a large batch."""
        draw = self.random
        queue, count = draw.choice(QUEUES), draw.choice([1, 1, 1, 2, 5, 20])
        fields = draw.choice([{}, {}, {}, {"waiter": "t"}, {"group": draw.choice(GROUPS)} if queue != PLAIN else {}])
        await self.put([self.plain(queue, **fields) for _ in range(count)])

    async def put_many(self) -> None:
        """Put jobs of all kinds in one call, all with new ids, or all with ids that may be taken or given twice."""
        draw, jobs = self.random, list[NewJob]()
        queues, fresh, general = draw.choice([QUEUES, QUEUES[:1]]), draw.random() < 0.4, draw.choice([0.0, 0.5])
        for _ in range(draw.randint(2, 8)):
            queue = draw.choice(queues)
            job = self.plain(queue) if fresh else self.plain(queue, id=draw.choice(IDS), fresh=False)
            if draw.random() < general:
                update = None if fresh else draw.choice([None, None, self.update()])
                job = self.job(queue, id=job.id, fresh=fresh, update=update)
            jobs.append(job)
        await self.put(jobs)

    async def put_successor(self) -> None:
        """Put an update of a job that may be running: then it is blocked until the run ends."""
        if self.claims:
            held = self.random.choice(self.claims[-8:])
            await self.put([self.job(held.queue, id=held.id, update=self.update())])

    # running -----------------------------------------------------------------------------------------

    def requests(self) -> tuple[list[Request], str, int, str]:
        draw = self.random
        self.made += 1
        queues = draw.sample(QUEUES, draw.randint(1, 2))
        requests = [Request(queue, draw.choice([1, 2, 4, 20]), draw.choice([1, 1, 1, 2, 3])) for queue in queues]
        return requests, draw.choice(WORKERS), draw.choice([3 * HOUR, 3 * HOUR, MOMENT]), f"token{self.made:011}"

    def claimed(self, answer: Claimed) -> None:
        self.claims += [ClaimRef(claim.queue, claim.id, claim.token) for claim in answer.claims]

    async def claim(self) -> None:
        args = self.requests()
        self.claimed(await self.both(f"claim{args}", lambda s: s.claim(*args)))

    async def open_claim(self) -> None:
        """Leave a claim open on the fast storage, and claim on the other: the answers are the same."""
        args = self.requests()
        queues = [request.queue for request in args[0]]

        async def opened(storage: Any) -> Claimed:
            if not getattr(storage, "opens_claims", False):
                return await storage.claim(*args)
            answers: list[Claimed] = []
            await storage.open_claim(queues, *args, 0.001).answer(lambda _, claimed: answers.append(claimed))
            [answer] = answers
            return answer

        self.claimed(await self.both(f"open_claim{args}", opened, lambda s: s.claim(*args)))

    def resolution(self, queue: str, *, delays: Sequence[int] = (0, 0, HOUR)) -> Resolution:
        draw = self.random
        family = queue.partition("/")[0]
        then = tuple(self.job(draw.choice([family, queue])) for _ in range(draw.choice([0, 0, 1, 2])))
        kind = draw.choice(["complete"] * 4 + ["retried", "retried", "fail", "cancel", "release", "stall"])
        match kind:
            case "complete":
                return Complete(draw.choice([b"", b"r"]), draw.choice(TTLS), then)
            case "fail":
                return Fail(b"e", draw.choice(TTLS), draw.choice([None, "timeouts"]), then, draw.random() < 0.5)
            case "cancel":
                return Cancel(draw.choice(TTLS), draw.random() < 0.5)
            case "release":
                return Release()
            case "stall":
                return Stall()
            case _:
                return Retried(
                    delay=draw.choice(delays), count=draw.choice(["retries", "timeouts", None]),
                    position=draw.choice(["keep", "due"]), solo=draw.random() < 0.3, error=draw.choice([b"", b"e"]),
                    pause=draw.choice([None, None, "group"]) if queue == LIMITED else None,
                )  # fmt: skip

    async def settle(self, settlements: list[Settlement]) -> None:
        if settlements:
            self.settled += settlements
            await self.both(f"settle({settlements})", lambda s: s.settle(settlements))

    async def settle_one(self) -> None:
        if self.claims:
            held = self.claims[-1] if self.random.random() < 0.7 else self.random.choice(self.claims)
            resolution = self.resolution(held.queue, delays=(0, MOMENT, HOUR))
            await self.settle([Settlement(held.queue, held.id, held.token, resolution)])

    async def settle_many(self) -> None:
        """Settle several claims in all ways, some twice or with tokens that are stale by now."""
        chosen = [self.random.choice(self.claims[-12:]) for _ in range(self.random.randint(2, 6)) if self.claims]
        await self.settle([Settlement(c.queue, c.id, c.token, self.resolution(c.queue)) for c in chosen])

    async def settle_claim(self) -> None:
        """Complete all jobs of the last claims in one call; now and then one of them fails."""
        recent = self.claims[-self.random.choice([1, 5, 20, 40]) :]
        done = Complete(b"r", self.random.choice([HOUR, None]))
        rare = self.random.choice([0.0, 0.0, 0.1])
        await self.settle(
            [
                Settlement(c.queue, c.id, c.token, Fail(b"e", HOUR) if self.random.random() < rare else done)
                for c in recent
            ]
        )

    async def settle_again(self) -> None:
        if self.settled:
            await self.settle([self.random.choice(self.settled[-6:])])

    async def settle_with_a_stale_token(self) -> None:
        if self.claims:
            held = self.random.choice(self.claims[-8:])
            await self.settle([Settlement(held.queue, held.id, "stale", self.resolution(held.queue))])

    async def renew(self) -> None:
        named = self.random.sample(self.claims[-12:], min(len(self.claims[-12:]), self.random.randint(1, 5)))
        lease = self.random.choice([5 * HOUR, MOMENT])
        await self.both(f"renew({named}, {lease})", lambda s: s.renew("w", named, lease))

    async def report(self) -> None:
        if self.claims:
            held = self.random.choice(self.claims[-8:])
            await self.both(f"report({held})", lambda s: report_progress(s, held, b"half"))

    async def reap(self) -> None:
        """Reap; the order among leases that end in one millisecond may differ, so the answers are sorted."""

        async def reaped(storage: Storage) -> list[str]:
            return sorted(map(repr, await storage.reap(QUEUES)))

        await self.both(f"reap({QUEUES})", reaped)

    # other verbs -------------------------------------------------------------------------------------

    def some_ids(self) -> tuple[str, list[str]]:
        names = [*IDS, *(claim.id for claim in self.claims[-3:])]
        return self.random.choice(QUEUES), list(dict.fromkeys(self.random.choices(names, k=2)))

    async def cancel(self) -> None:
        queue, ids = self.some_ids()
        mode, ttl = self.random.choice(CANCEL_MODES), self.random.choice(TTLS)
        await self.both(f"cancel({queue!r}, {ids}, {mode!r}, {ttl})", lambda s: s.cancel(queue, ids, mode, ttl))

    async def discard(self) -> None:
        queue, ids = self.some_ids()
        state = self.random.choice([None, None, *State])
        await self.both(f"discard({queue!r}, {ids}, {state})", lambda s: s.discard(queue, ids, state))

    async def revive(self) -> None:
        queue, ids = self.some_ids()
        completed = self.random.random() < 0.5
        await self.both(f"revive({queue!r}, {ids}, {completed})", lambda s: s.revive(queue, ids, completed))

    async def pause(self) -> None:
        queue, paused = self.random.choice(QUEUES), self.random.random() < 0.3
        await self.both(f"set_pause({queue!r}, {paused})", lambda s: s.set_pause(queue, paused))

    async def limit(self) -> None:
        """Set or remove a limit of a queue that has limits: the others keep their fast paths."""
        draw, queue = self.random, LIMITED
        scope = draw.choice([Scope("queue", queue), Scope("groups", queue), Scope("group", queue, draw.choice(GROUPS))])
        if draw.random() < 0.15:
            scope = Scope("family", queue)
        if draw.random() < 0.4:
            return await self.set_limit(
                Scope("queue", PLAIN), Limit(concurrency=draw.choice([2, 5, 30])).rule("queue", 0)
            )
        # A rate allows its burst now, and nothing more during the walk.
        rate, burst = draw.choice([(None, 1), (Rate(1, 24 * HOUR / 1000), draw.choice([2, 9]))])
        weight = draw.choice([1, 2]) if scope.kind in ("groups", "group") else 1
        limit = Limit(concurrency=draw.choice([None, 1, 2, 30]), rate=rate, burst=burst, weight=weight)
        rule = None if draw.random() < 0.4 else limit.rule("group" if scope.kind == "groups" else scope.kind, 0)
        await self.set_limit(scope, rule)

    async def set_limit(self, scope: Scope, rule: Rule | None) -> None:
        async def change(storage: Storage) -> int | None:
            assert isinstance(storage, Limiting)
            return await storage.set_limit(scope, rule, b"", (await storage.get_limit(scope)).version)

        await self.both(f"set_limit({scope}, {rule})", change)

    async def pause_group(self) -> None:
        draw, queue = self.random, LIMITED
        group, paused = draw.choice(GROUPS), draw.random() < 0.4
        until = draw.choice([None, round(time.time() * 1000) + 2 * HOUR])
        step = f"set_pause({queue!r}, {paused}, {until}, group={group!r})"
        await self.both(step, lambda s: s.set_pause(queue, paused, until, "w", group))

    async def set_ttl(self) -> None:
        queue, ids = self.some_ids()
        ttl = self.random.choice(TTLS)
        await self.both(f"set_ttl({queue!r}, {ids[0]!r}, {ttl})", lambda s: s.set_ttl(queue, ids[0], ttl))

    async def purge(self) -> None:
        await self.both(f"purge({QUEUES})", lambda s: s.purge(QUEUES))

    async def delete_queue(self) -> None:
        queue = self.random.choice(QUEUES)
        await self.both(f"delete_queue({queue!r})", lambda s: s.delete_queue(queue))


def normalized(value: Any, now: int) -> Any:
    """Return a value of plain lists and dicts in which times are whole steps of ten minutes from now."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        value = {name: _from_now(it, now) if name in TIMES else it for name, it in fields.items()}
    if isinstance(value, dict):
        return {name: normalized(it, now) for name, it in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [normalized(it, now) for it in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _from_now(value: int | None, now: int) -> int | None:
    return None if value is None else round((value - now) / STEP)
