"""A queue with jobs in every state, the verbs on its jobs, and a worker that drains it: for tests of damaged records.

A test builds the scene, damages one record, calls `use`, then `drain`. Both raise if a verb does, and `drain` fails if
a job other than the victims did not end exactly once. Nothing here depends on the storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.model.job import Claim, State
from penstock.model.storage_info import Inspectable
from penstock.storage.base import Request, Storage
from tests.support import HOUR, LEASE, SECOND, Clock, complete, fail, held, new, retried, update

__all__ = ["QUEUE", "Scene", "build_scene", "drain", "use"]

QUEUE = "q"
#: Jobs that nothing but the verbs of `use` ends.
CANCELLED, DISCARDED, EXPIRES = "za", "zb", "late"
FINISHED_IDS = ("done", "broken", "called-off")
#: Jobs that wait, by the reason; the first two share the start of their ids. Each is completed once.
PLAIN = ("p1", "p12", "p2", "high", "starts")
GROUPED = {"ga": "g", "gb": "g", "ia": "i", "ib": "i", "ma": "m"}
LIVE, DEAD = ("la", "lb", "lc", "lg"), ("da", "db", "dc", "dg")
RETRYING, SCHEDULED = ("ra", "rg"), ("sa", "sb", "sg")
PARKED = "newer"
#: How often each of them is completed. A run has a successor with its id.
EXPECTED = Counter([*PLAIN, *GROUPED, *LIVE, *DEAD, *RETRYING, *SCHEDULED, PARKED, LIVE[0]])


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


async def build_scene(storage: Storage, clock: Clock) -> Scene:
    """Put jobs into every state: two workers hold claims, one of them will not come back."""
    scene = Scene(storage, clock)
    await storage.put([new(QUEUE, id) for id in (*FINISHED_IDS, "called-off-too", "forgotten")])
    await storage.cancel(QUEUE, ["called-off", "called-off-too"], ttl=HOUR)
    done, broken, forgotten = await _claim(storage, "settled")
    await storage.settle([complete(done), fail(broken), complete(forgotten, ttl=0)])
    await storage.put([new(QUEUE, RETRYING[0]), new(QUEUE, RETRYING[1], group="k")])
    await storage.settle([retried(claim, delay=20 * SECOND, error=b"e") for claim in await _claim(storage, "retries")])
    await storage.put([new(QUEUE, id) for id in DEAD[:3]] + [new(QUEUE, DEAD[3], group="h")])
    scene.dead = await _claim(storage, "dead")
    await storage.put([new(QUEUE, id) for id in LIVE[:3]] + [new(QUEUE, LIVE[3], group="g")])
    scene.live = await _claim(storage, "live")
    await storage.put([update(QUEUE, LIVE[0], b"successor", start_within=HOUR)])
    await storage.report(held(scene.live[2]), b"progress")
    clock.advance(ms=SECOND)
    await storage.renew("w", [held(claim) for claim in scene.live[:2]], 30 * SECOND)  # the others get parts
    await _put_waiting(storage)
    return scene


async def _claim(storage: Storage, token: str) -> list[Claim]:
    return (await storage.claim([Request(QUEUE, 100)], "w", LEASE, token)).claims


async def _put_waiting(storage: Storage) -> None:
    known: int = getattr(storage, "format")  # noqa: B009 - not part of the protocol
    setattr(storage, "format", known + 1)  # noqa: B010
    await storage.put([new(QUEUE, PARKED, priority=9)])
    setattr(storage, "format", known)  # noqa: B010
    assert await _claim(storage, "parks") == []
    await storage.put([new(QUEUE, id, waiter="a waiter") for id in PLAIN[:3]])
    await storage.put([new(QUEUE, PLAIN[3], priority=5), new(QUEUE, PLAIN[4], start_within=HOUR)])
    await storage.put([new(QUEUE, id, group=group) for id, group in GROUPED.items()])
    await storage.put([new(QUEUE, id, delay=15 * SECOND) for id in SCHEDULED[:2]])
    await storage.put([new(QUEUE, SCHEDULED[2], delay=15 * SECOND, group="g")])
    await storage.put([new(QUEUE, id, delay=HOUR) for id in (CANCELLED, DISCARDED)])
    await storage.put([new(QUEUE, EXPIRES, delay=HOUR, start_within=5 * SECOND)])
    await storage.beat("w", HOUR, b"info")


async def use(scene: Scene, victims: Collection[str] = ()) -> None:
    """Call every verb, those that name jobs with others than the victims."""
    storage = scene.storage
    others = sorted(EXPECTED.keys() - set(victims))
    await _read(storage, others)
    await storage.put([new(QUEUE, "extra")])
    await storage.put([new(QUEUE, "fresh", fresh=True), new(QUEUE, "fresh-too", fresh=True)])
    await storage.put([new(QUEUE, "in-group", group="g"), new(QUEUE, "later", delay=SECOND), new(QUEUE, "done")])
    await storage.put([update(QUEUE, id, b"new") for id in PLAIN if id not in victims])
    await storage.renew("w", [held(claim) for claim in scene.live], 30 * SECOND)
    await storage.report(held(scene.live[3]), b"progress")
    await storage.cancel(QUEUE, [id for id in (CANCELLED, "none") if id not in victims])
    await storage.discard(QUEUE, [id for id in (DISCARDED, "none") if id not in victims])
    await storage.revive(QUEUE, [id for id in ("called-off-too", "none") if id not in victims])
    for id in FINISHED_IDS:
        if id not in victims:
            await storage.set_ttl(QUEUE, id, HOUR)
    await storage.set_paused(QUEUE, True)
    await storage.set_paused(QUEUE, False)
    await storage.beat("v", HOUR, b"info")
    await storage.beat("v", 0)
    await scene.complete(scene.live)
    await _read(storage, others)


async def _read(storage: Storage, ids: Collection[str]) -> None:
    await storage.get(QUEUE, [*ids, "none"])
    for state in State:
        await storage.find(QUEUE, state)
    for id in ids:
        await storage.why(QUEUE, id)
    await storage.peek(QUEUE)
    await storage.counts(QUEUE)
    await storage.paused(QUEUE)
    await storage.queues()
    await storage.workers()
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
