"""A queue with jobs in every state, the verbs on its jobs, and a worker that drains it: for tests of damaged records.

A test builds the scene, damages one record, calls `use`, then `drain`. Both raise if a verb does, and `drain` fails if
a job other than the victims did not end exactly once. Nothing here depends on the storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

from penstock.errors import JobError
from penstock.model.history import NewLine, Report
from penstock.model.ids import family_of
from penstock.model.job import Claim, State
from penstock.model.limit import EVERY, EveryGroup, Limit
from penstock.model.storage_info import Inspectable
from penstock.storage.base import Request, Storage
from penstock.storage.limiting import Limiting, Scope
from penstock.storage.observing import RINGS, Histogram, RunTimes, observing_of
from penstock.storage.recording import Recording
from penstock.storage.scheduling import Scheduling
from tests.schedules import firing, record, tick
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Clock,
    complete,
    fail,
    held,
    new,
    release,
    report_progress,
    retried,
    set_limit,
    set_scope_limit,
    update,
)

__all__ = ["ALL_IDS", "QUEUE", "Scene", "build_scene", "drain", "limit_scene", "use"]

QUEUE = "q"
#: Jobs that nothing but the verbs of `use` ends.
CANCELLED, DISCARDED, EXPIRES = "za", "zb", "late"
ERROR = JobError("Broken", "it is broken", key="0123456789abcdef").encode()
FINISHED_IDS = ("done", "broken", "called-off")
#: Jobs that wait, by the reason; the first two share the start of their ids. Each is completed once.
PLAIN = ("p1", "p12", "p2", "high", "starts")
GROUPED = {"ga": "g", "gb": "g", "ia": "i", "ib": "i", "ma": "m"}
LIVE, DEAD = ("la", "lb", "lc", "lg"), ("da", "db", "dc", "dg")
RETRYING, SCHEDULED = ("ra", "rg"), ("sa", "sb", "sg")
PARKED = "newer"
#: How often each of them is completed. A run has a successor with its id.
EXPECTED = Counter([*PLAIN, *GROUPED, *LIVE, *DEAD, *RETRYING, *SCHEDULED, PARKED, LIVE[0]])
#: The limits of a limited queue: its own, that of each group, and that of one group.
LIMITS: dict[str | EveryGroup | None, Limit] = {
    None: Limit(concurrency=50, rate="1000/s", burst=1000),
    EVERY: Limit(concurrency=1, rate="1/s", burst=9),
    "m": Limit(concurrency=1, weight=2),
}
#: Every id in the scene.
ALL_IDS = {*EXPECTED, *FINISHED_IDS, "called-off-too", "forgotten", CANCELLED, DISCARDED, EXPIRES}


@dataclass
class Scene:
    """The storage, its clock, the claims of a worker that is alive, and how often each job was completed."""

    storage: Storage
    clock: Clock
    live: list[Claim] = field(default_factory=list[Claim])
    dead: list[Claim] = field(default_factory=list[Claim])
    completed: Counter[str] = field(default_factory=Counter[str])

    async def complete(self, claims: Collection[Claim]) -> None:
        """Complete claims in one call, and count those that the storage accepts."""
        for claim, answer in zip(claims, await self.storage.settle([complete(c) for c in claims]), strict=True):
            if answer.state is State.COMPLETED:
                self.completed[claim.id] += 1


async def build_scene(storage: Storage, clock: Clock, *, limited: bool = False) -> Scene:
    """Put jobs into every state: two workers hold claims, one of them will not come back.

    A limited queue has limits of all kinds that hold no job for long, and a paused group.
    """
    scene = Scene(storage, clock)
    if limited:
        for group, limit in LIMITS.items():
            await set_limit(storage, limit, QUEUE, group)
        await set_scope_limit(storage, LIMITS[None], Scope("family", family_of(QUEUE)))
    await storage.put([new(QUEUE, id) for id in (*FINISHED_IDS, "called-off-too", "forgotten")])
    await storage.cancel(QUEUE, ["called-off", "called-off-too"], ttl=HOUR)
    done, broken, forgotten = await _claim(storage, "settled")
    await storage.settle([complete(done), fail(broken, ERROR), complete(forgotten, ttl=0)])
    await _record_stats(storage)
    await storage.put([new(QUEUE, RETRYING[0]), new(QUEUE, RETRYING[1], group="k")])
    await storage.settle([retried(claim, delay=20 * SECOND, error=b"e") for claim in await _claim(storage, "retries")])
    await storage.put([new(QUEUE, id) for id in DEAD[:3]] + [new(QUEUE, DEAD[3], group="h")])
    scene.dead = await _claim(storage, "dead")
    await storage.put([new(QUEUE, id) for id in LIVE[:3]] + [new(QUEUE, LIVE[3], group="g")])
    scene.live = await _claim(storage, "live")
    await storage.put([update(QUEUE, LIVE[0], b"successor", start_within=HOUR)])
    await report_progress(storage, held(scene.live[2]), b"progress")
    await _log(storage, scene.live[:3], first=1)
    clock.advance(ms=SECOND)
    await storage.renew("w", [held(claim) for claim in scene.live[:2]], 30 * SECOND)  # the others get parts
    if limited:
        await storage.set_pause(QUEUE, True, clock.ms + 20 * SECOND, "w", "i")
    await _put_waiting(storage)
    if limited:
        await storage.set_pause(QUEUE, True, clock.ms + 25 * SECOND, "w", "i")
    return scene


async def _record_stats(storage: Storage) -> None:
    """Measure a run, and have the queues sampled if there is no sample of this minute."""
    if (observing := observing_of(storage)) is not None:
        times = Histogram((0, 1), 100)
        await observing.record_stats("w", [RunTimes(QUEUE, times, times)])


async def _read_stats(storage: Storage) -> None:
    """Read statistics, samples, error groups and groups."""
    if (observing := observing_of(storage)) is None:
        return
    await observing.stats([QUEUE])
    for step in RINGS:
        await observing.history(QUEUE, step)
        await observing.history(None, step)
    for group in (await observing.error_groups(QUEUE)).groups:
        await observing.group_jobs(QUEUE, group.key)
    await observing.groups(QUEUE)
    for state in State:
        await observing.find(QUEUE, state, newest=True)


async def _log(storage: Storage, claims: Collection[Claim], first: int) -> None:
    """Report two lines of each of these runs."""
    lines = NewLine("one"), NewLine("two")
    await storage.report(
        [Report(queue=QUEUE, id=claim.id, token=claim.token, lines=lines, first=first) for claim in claims]
    )


async def _claim(storage: Storage, token: str) -> list[Claim]:
    return (await storage.claim([Request(QUEUE, 100)], "w", LEASE, token)).claims


async def _put_waiting(storage: Storage) -> None:
    known: int = getattr(storage, "format")  # noqa: B009 - not part of the protocol
    setattr(storage, "format", known + 1)  # noqa: B010
    await storage.put([new(QUEUE, PARKED, priority=9)])
    setattr(storage, "format", known)  # noqa: B010
    assert await _claim(storage, "parks") == []
    await storage.put([new(QUEUE, id, waiter="a waiter") for id in PLAIN[:3]])
    await storage.put(
        [
            new(QUEUE, PLAIN[3], priority=5, fresh=True, cost=3, window=HOUR),
            new(QUEUE, PLAIN[4], start_within=HOUR, fresh=True),
        ]
    )
    await storage.put([new(QUEUE, id, group=group) for id, group in GROUPED.items()])
    await storage.put([new(QUEUE, id, delay=15 * SECOND) for id in SCHEDULED[:2]])
    await storage.put([new(QUEUE, SCHEDULED[2], delay=15 * SECOND, group="g")])
    await storage.put([new(QUEUE, id, delay=HOUR) for id in (CANCELLED, DISCARDED)])
    await storage.put([new(QUEUE, EXPIRES, delay=HOUR, start_within=5 * SECOND)])
    await storage.beat("w", HOUR, b"info")
    if isinstance(storage, Scheduling):
        await _add_schedules(storage)


async def _add_schedules(storage: Scheduling) -> None:
    """Add schedules: one that `use` fires, one that ticks then too, one that expires, one that is over."""
    await storage.set_schedule(record("sa", next=T0 + 2 * SECOND, last_id="sa", last_at=T0), 0)
    await storage.set_schedule(record("sb", next=T0 + 3 * SECOND), 0)
    await storage.set_schedule(record("sc", next=T0 + HOUR, expires=T0 + 10 * SECOND), 0)
    await storage.set_schedule(record("sd", next=None), 0)
    await storage.due([QUEUE], "w")


async def use(scene: Scene, victims: Collection[str] = ()) -> None:
    """Call every verb, those that name jobs with others than the victims."""
    storage = scene.storage
    await _read(storage, sorted(EXPECTED.keys() - set(victims)))
    await storage.put([new(QUEUE, "extra")])
    await storage.put([new(QUEUE, "windowed", window=HOUR), update(QUEUE, "windowed", window=HOUR)])
    await storage.put([new(QUEUE, "fresh", fresh=True), new(QUEUE, "fresh-too", fresh=True)])
    await storage.put([new(QUEUE, "in-group", group="g"), new(QUEUE, "later", delay=SECOND), new(QUEUE, "done")])
    await storage.put([update(QUEUE, id, b"new") for id in PLAIN if id not in victims])
    await storage.renew("w", [held(claim) for claim in scene.live], 30 * SECOND)
    await report_progress(storage, held(scene.live[3]), b"progress")
    await _log(storage, scene.live, first=2)
    await storage.cancel(QUEUE, [id for id in (CANCELLED, "none") if id not in victims])
    await storage.discard(QUEUE, [id for id in (DISCARDED, "none") if id not in victims])
    await storage.revive(QUEUE, [id for id in ("called-off-too", "none") if id not in victims])
    for id in FINISHED_IDS:
        if id not in victims:
            await storage.set_ttl(QUEUE, id, HOUR)
    await _record_stats(storage)
    await storage.set_pause(QUEUE, True)
    await storage.set_pause(QUEUE, False)
    await storage.set_pause(QUEUE, True, group="none")
    await storage.set_pause(QUEUE, False, group="none")
    if isinstance(storage, Limiting):
        await _use_limits(storage)
    await storage.beat("v", HOUR, b"info")
    await storage.beat("v", 0)
    if isinstance(storage, Scheduling):
        await _use_schedules(storage, scene.clock)
    await scene.complete(scene.live)


async def _use_schedules(storage: Scheduling, clock: Clock) -> None:
    """Fire what is due as a worker does, and call the other verbs of schedules."""
    clock.advance(ms=5 * SECOND)
    for _ in range(3):
        due = await storage.due([QUEUE], "w")
        await storage.fire([firing(each.version, tick(1, each.name), name=each.name) for each in due.schedules])
    clock.advance(ms=-5 * SECOND)
    for each in (await storage.schedules(QUEUE)).schedules:
        assert await storage.get_schedule(QUEUE, each.name) is not None
    version = await storage.set_schedule(record("new"), 0, firing(0, tick(0, "new"), manual=True))
    assert version is not None
    assert await storage.drop_schedule(QUEUE, "new", version)


async def limit_scene(storage: Limiting) -> None:
    """Set limits of every kind that let all jobs run, and pause two groups: one for ever, one with jobs for a while."""
    for scope in (Scope("family", family_of(QUEUE)), Scope("queue", QUEUE)):
        await storage.set_limit(scope, Limit(concurrency=90, rate="100/s", burst=90).rule("queue", 0), b"", 0)
    for scope in (Scope("groups", QUEUE), Scope("group", QUEUE, "g")):
        await storage.set_limit(scope, Limit(rate="100/s", burst=50, weight=2).rule("group", 0), b"settings", 0)
    plain = cast(Storage, storage)
    await plain.set_pause(QUEUE, True, None, "ann", "paused")
    await plain.set_pause(QUEUE, True, await plain.time() + 20 * SECOND, "ann", "i")
    await plain.put([new(QUEUE, "charges", group="charged")])
    claims = await _claim(plain, "charges")
    await plain.settle([complete(claim) if claim.id == "charges" else release(claim) for claim in claims])


async def _use_limits(storage: Limiting) -> None:
    """Call the verbs of limits, and resume all groups."""
    for scope in (Scope("queue", QUEUE), Scope("groups", QUEUE), Scope("group", QUEUE, "g")):
        await storage.get_limit(scope)
    page = await storage.limits(QUEUE)
    for group in {each.scope.group for each in page.limits} - {None}:
        await cast(Storage, storage).set_pause(QUEUE, False, group=group)
    own = await storage.get_limit(Scope("group", QUEUE, "h"))
    if page.limits:
        await storage.set_limit(own.scope, Limit(concurrency=1).rule("group", 0), b"", own.version)


async def _read(storage: Storage, ids: Collection[str]) -> None:
    await storage.get(QUEUE, [*ids, "none"])
    for state in State:
        await storage.find(QUEUE, state)
    for id in [*ids][::5]:
        await storage.why(QUEUE, id)
    await _read_stats(storage)
    await storage.peek(QUEUE)
    await storage.counts(QUEUE)
    await storage.paused(QUEUE)
    await storage.queues()
    await storage.workers()
    if isinstance(storage, Limiting):
        await storage.limits(QUEUE)
        await storage.get_limit(Scope("groups", QUEUE))
    if isinstance(storage, Recording):
        for id in (*LIVE, *RETRYING, *FINISHED_IDS):
            await storage.read(QUEUE, id, "attempts")
            await storage.read(QUEUE, id, "log")
    if isinstance(storage, Inspectable):
        await storage.meters([QUEUE])
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED):
            await storage.latest(QUEUE, state)


async def drain(scene: Scene, victims: Collection[str] = (), rounds: int = 6) -> None:
    """Work as a worker does, until all is done; every job but the victims must have ended exactly once."""
    storage = scene.storage
    for turn in range(rounds):
        if turn == 2:
            setattr(storage, "format", getattr(storage, "format") + 1)  # noqa: B009, B010 - a newer worker
        scene.clock.advance(ms=30 * SECOND)
        await storage.reap([QUEUE])
        await storage.purge([QUEUE])
        await _record_stats(storage)
        await _read_stats(storage)
        number = 0
        while claims := (await storage.claim([Request(QUEUE, 7)], "w", LEASE, f"drain {turn} {number}")).claims:
            groups = [claim.group for claim in claims if claim.group and claim.id not in victims]
            assert len(groups) == len(set(groups)), f"two jobs of a group run at once: {claims}"
            await scene.complete(claims)
            number += 1
            assert number < 100, f"claims do not end: {claims}"
    setattr(storage, "format", getattr(storage, "format") - 1)  # noqa: B009, B010
    wrong = {id: scene.completed[id] for id in EXPECTED if scene.completed[id] != EXPECTED[id] and id not in victims}
    assert not wrong, f"completed a wrong number of times: {wrong}"
    for id in {CANCELLED, DISCARDED, EXPIRES} - set(victims):
        assert scene.completed[id] == 0
