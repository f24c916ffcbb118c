"""Scenes: short fixed sequences of calls, each once in every seed, for situations that a random walk meets seldom.

They are played in queues of their own by a client whose calls no fault hits, so each call has its effect; clocks that
jump and servers that stand still meet them too. The shadow compares every answer, so most scenes assert nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import JobError
from penstock.model.history import NewLine
from penstock.model.job import NewJob, State, Update
from penstock.model.limit import Limit
from penstock.storage.base import Complete, Fail, Report, Retried
from penstock.storage.limiting import Scope

if TYPE_CHECKING:
    from sim.work.stager import Stager

__all__ = ["SCENES"]

STAGE, SIDE, FAILED, QUIET = "scene", "scene/side", "scene/failures", "quiet"

LEASE = 3000


def _jobs(stager: Stager, group: str | None, count: int, **options: Any) -> list[NewJob]:
    return [NewJob(queue=STAGE, id=stager.new_id(), payload=b"s", group=group, **options) for _ in range(count)]


async def follow_up_into_group(stager: Stager) -> None:
    """Complete two runs of a group in one call, the first with a follow-up into the group, which its limit closes."""
    storage, group = stager.storage, stager.new_id()
    scope = Scope("group", STAGE, group)
    await stager.set_limit(scope, Limit(concurrency=2))
    await storage.put(_jobs(stager, group, 2))
    held = await stager.claim(STAGE, LEASE)
    await stager.set_limit(scope, Limit(concurrency=1, ordered=False))
    then = tuple(_jobs(stager, group, 1))
    ends = [Complete(b"", 0, then=then), Complete(b"", 0)]
    await stager.settle(held, ends)
    await storage.get_limit(Scope("groups", STAGE))
    await stager.settle(await stager.claim(STAGE, LEASE), [Complete(b"", 0)])
    await storage.groups(STAGE)
    await stager.set_limit(scope, None)


async def cancel_again(stager: Stager) -> None:
    """Ask a run to end again and again: an event follows the first request, and the first that kills."""
    storage = stager.storage
    await storage.put(_jobs(stager, None, 1))
    held = await stager.claim(STAGE, LEASE)
    for mode in ("signal", "signal", "kill", "signal"):
        await storage.cancel(STAGE, [claim.id for claim in held], mode, 0)
    await stager.settle(held, [Complete(b"", 0)])


async def expire_in_backoff(stager: Stager) -> None:
    """Let a job in backoff expire: its group goes on."""
    storage, group = stager.storage, stager.new_id()
    first, second = _jobs(stager, group, 2)
    await storage.put([first, second])
    await stager.settle(await stager.claim(STAGE, LEASE), [Retried(delay=20_000)])
    update = Update(run_at=False, reset_counts=True)
    await storage.put([NewJob(queue=STAGE, id=first.id, payload=b"s", group=group, update=update, start_within=100)])
    await asyncio.sleep(0.15)
    await stager.settle(await stager.claim(STAGE, LEASE), [Complete(b"", 0)])


async def run_past_expiry(stager: Stager) -> None:
    """Start jobs that may expire, and read the queue after that time: nothing of their expiry is left."""
    storage = stager.storage
    await storage.put([*_jobs(stager, None, 1, start_within=300), *_jobs(stager, stager.new_id(), 1, start_within=300)])
    held = await stager.claim(STAGE, LEASE)
    await asyncio.sleep(0.35)
    await storage.counts(STAGE)
    await stager.claim(STAGE, LEASE)
    await stager.settle(held, [Complete(b"", 0)] * 2)
    stager.check_damage(STAGE)


async def lose_head(stager: Stager) -> None:
    """Let the next job of a group without limits leave in several ways: its turn goes to the following one."""
    storage = stager.storage
    for way in range(4):
        group = stager.new_id()
        jobs = [NewJob(queue=QUIET, id=stager.new_id(), payload=b"s", group=group) for _ in range(3)]
        await storage.put(jobs)
        await stager.settle(await stager.claim(QUIET, LEASE), [Complete(b"", 0)])
        if way == 3:
            update = NewJob(queue=QUIET, id=jobs[1].id, payload=b"s", group=group, update=Update(), delay=1000)
            await storage.put([update])
        else:
            await storage.cancel(QUIET, [jobs[1].id], "refuse", (0, 500, 9000)[way])
        await stager.settle(await stager.claim(QUIET, LEASE), [Complete(b"", 0)])
        await storage.cancel(QUIET, [job.id for job in jobs])


async def update_after_promotion(stager: Stager) -> None:
    """Update a job whose backoff was over while the clock was ahead: no backoff begins again."""
    storage = stager.storage
    for group in (None, stager.new_id()):
        [first] = _jobs(stager, group, 1)
        await storage.put([first])
        await stager.settle(await stager.claim(STAGE, LEASE), [Retried(delay=1000)])
        with stager.ahead(5.0):
            await storage.find(STAGE)
        update = Update(run_at=False)
        await storage.put([NewJob(queue=STAGE, id=first.id, payload=b"u", group=group, update=update)])
        await storage.counts(STAGE)
        await storage.put(_jobs(stager, group, 1))
        await stager.settle(await stager.claim(STAGE, LEASE), [Complete(b"", 0)] * 2)
        await storage.cancel(STAGE, [first.id])


async def limit_family(stager: Stager) -> None:
    """Give a family a limit before its fail queue has a job: the fail queue is not held up."""
    storage, scope = stager.storage, Scope("family", STAGE)
    await stager.set_limit(scope, Limit(concurrency=1))
    await storage.put([NewJob(queue=FAILED, id=stager.new_id(), payload=b"f") for _ in range(3)])
    await storage.put([NewJob(queue=SIDE, id=stager.new_id(), payload=b"f") for _ in range(2)])
    held = await stager.claim(FAILED, LEASE)
    await stager.settle(await stager.claim(SIDE, LEASE), [Complete(b"", 0)])
    await stager.settle(held, [Complete(b"", 0)] * 3)
    await stager.set_limit(scope, None)


async def list_ended_runs(stager: Stager) -> None:
    """End all runs between two pages of their listing: the position of the listing is not kept."""
    storage = stager.storage
    await storage.put(_jobs(stager, None, 3))
    held = [claim for _ in range(3) for claim in await stager.claim(STAGE, LEASE, 1)]
    page = await storage.find(STAGE, State.RUNNING, None, 1)
    await stager.settle(held, [Complete(b"", 0)] * 3)
    await storage.find(STAGE, State.RUNNING, page.cursor)
    stager.check_damage(STAGE)


async def purge_and_reuse(stager: Stager) -> None:
    """Purge a completed and a failed job, and put their ids again: nothing of the first jobs is left."""
    storage = stager.storage
    error = JobError("Scene", "s", key=f"{stager.random.getrandbits(64):016x}").encode()
    names = [stager.new_id(), stager.new_id()]
    jobs = [NewJob(queue=SIDE, id=name, payload=b"p") for name in names]
    await storage.put(jobs)
    await stager.settle(await stager.claim(SIDE, LEASE), [Retried(error=error), Retried(error=error)])
    held = await stager.claim(SIDE, LEASE)
    lines = (NewLine("one", "info", 0),)
    await storage.report([Report(queue=SIDE, id=each.id, token=each.token, lines=lines, first=1) for each in held])
    await stager.settle(held, [Complete(b"", 100), Fail(error, 100)])
    await storage.error_groups(SIDE)
    await asyncio.sleep(0.15)
    await storage.purge([SIDE])
    await storage.error_groups(SIDE)
    stager.check_damage(SIDE)
    await storage.put(jobs)
    for name in names:
        await storage.read(SIDE, name, "attempts")
        await storage.read(SIDE, name, "log")
    await stager.settle(await stager.claim(SIDE, LEASE), [Complete(b"", 0)] * 2)


async def follow_up_elsewhere(stager: Stager) -> None:
    """Complete a run with a follow-up in another queue of its family, the only one that may have a listener."""
    storage = stager.storage
    await storage.put(_jobs(stager, None, 1))
    then = (NewJob(queue=SIDE, id=stager.new_id(), payload=b"t"),)
    await stager.settle(await stager.claim(STAGE, LEASE), [Complete(b"", 0, then=then)])
    await stager.settle(await stager.claim(SIDE, LEASE), [Complete(b"", 0)])


#: The scenes in their order: the fail queue is new when its family has got a limit.
SCENES: Sequence[Callable[[Any], Awaitable[None]]] = (
    limit_family, follow_up_into_group, cancel_again, expire_in_backoff, run_past_expiry, lose_head,
    update_after_promotion, list_ended_runs, purge_and_reuse, follow_up_elsewhere,
)  # fmt: skip
