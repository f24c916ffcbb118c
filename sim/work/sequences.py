"""Short sequences of calls in a random walk, for situations that single random calls seldom reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock import Every
from penstock.errors import JobError
from penstock.model.job import NewJob, State, Update
from penstock.model.limit import Limit
from penstock.storage.base import Complete, Fail, Request, Retried, Settlement
from penstock.storage.limiting import Scope
from penstock.ticking import TickFirer

if TYPE_CHECKING:
    from sim.work.walker import Walker

__all__ = ["SCHEDULES", "SEQUENCES"]

#: The names of the schedules of a walk.
SCHEDULES = ("near", "far")

#: The states of the jobs that `max_queued` bounds.
WAITING = (State.QUEUED, State.SCHEDULED, State.RETRYING)

#: The attempts of one job, of which a history keeps the first and the last 19.
MANY = 23


async def complete_beside_lost(walker: Walker, queue: str) -> None:
    """Complete runs together, of which some were taken back and began again meanwhile."""
    storage, random = walker.storage, walker.random
    queue = random.choice([queue, "walk/rare", "walk/rare"])
    jobs = [NewJob(queue=queue, id=walker.new_id(), payload=b"c", fresh=True) for _ in range(random.randint(1, 3))]
    await storage.put(jobs)
    first = await walker.claim([queue], 400, random.randint(1, 4))
    await asyncio.sleep(0.5)
    others = await walker.claim([queue], 3000, 4)
    await storage.reap([queue])
    again = await walker.claim([queue], 3000, random.randint(1, 4))
    held = random.choice([first, [*first, *others], [*first[:1], *others, *again[1:]]])
    ttl = random.choice([0, 500, 500])
    await walker.settle([Settlement(each.queue, each.id, each.token, Complete(b"", ttl)) for each in held])


async def write_before_due(walker: Walker, queue: str) -> None:
    """Put and settle plain jobs while another one is not yet due: if the clock is ahead, that may be ended or begun."""
    storage, random = walker.storage, walker.random
    group = random.choice([None, None, "g"])
    await storage.put([NewJob(queue=queue, id=walker.new_id(), payload=b"d", fresh=True) for _ in range(3)])
    held = await walker.claim([queue], 4000, 3)
    later = [
        NewJob(queue=queue, id=walker.new_id(), payload=b"d", delay=delay, group=group, priority=0 if group else 5)
        for delay in (800, 1600, 3000)
    ]
    await storage.put(later)
    if random.random() < 0.5:
        for ref in held:
            await walker.settle([Settlement(ref.queue, ref.id, ref.token, Fail(b"", 0))])
    else:
        for _ in range(4):
            await storage.put([NewJob(queue=queue, id=walker.new_id(), payload=b"d", fresh=True, group=group)])
    await storage.find(queue)
    await walker.claim([queue], 1500, 4)


async def retry_often(walker: Walker, queue: str) -> None:
    """Have one job fail so often that its history drops attempts, then read it."""
    storage, id = walker.storage, walker.new_id()
    await storage.put([NewJob(queue=queue, id=id, payload=b"m", fresh=True, priority=1000)])
    for number in range(MANY):
        claims = [claim for claim in await walker.claim([queue], 3000, 1) if claim.id == id]
        if not claims:
            break
        await walker.settle([Settlement(queue, id, claims[0].token, Retried(error=b"error %d" % number))])
    await storage.read(queue, id, "attempts")


async def list_runs(walker: Walker, queue: str) -> None:
    """Read the running jobs page by page while some of them end: one that runs all the time is listed once."""
    storage, random = walker.storage, walker.random
    jobs = [NewJob(queue=queue, id=walker.new_id(), payload=b"l", fresh=True) for _ in range(4)]
    await storage.put(jobs)
    for lease in (5000, 3000, 4000):
        await walker.claim([queue], lease, 2)
    before, found, after = walker.shared.running(), list[str](), None
    while True:
        page = await storage.find(queue, State.RUNNING, after, 1)
        found += [job.id for job in page.jobs]
        after = page.cursor
        if after is None:
            break
        ended = [ref for ref in walker.held[-8:] if ref.queue == queue and ref.id == found[-1]]
        if random.random() < 0.6:
            await walker.settle([Settlement(ref.queue, ref.id, ref.token, Complete(b"", 0)) for ref in ended])
    for (of, id), token in walker.shared.running().items():
        if of == queue and before.get((of, id)) == token and found.count(id) != 1:
            walker.shared.fault(f"a job that ran all the time was listed {found.count(id)} times", (of, id))
    await storage.find(queue, State.RUNNING)


async def keep_window(walker: Walker, queue: str) -> None:
    """Put an id with a window, let a successor wait for its run, and put the id again within the window."""
    storage, random, id = walker.storage, walker.random, walker.new_id()

    def job(update: Update | None, **options: Any) -> list[NewJob]:
        return [NewJob(queue=queue, id=id, payload=b"w", update=update, window=random.choice([1500, 4000]), **options)]

    await storage.put(job(None, priority=1000, delay=random.choice([None, None, 400])))
    await asyncio.sleep(0.5 * random.random())
    claims = [claim for claim in await walker.claim([queue], 3000, 2) if claim.id == id]
    if claims and random.random() < 0.6:
        await storage.put(job(Update()))
    await walker.settle(
        [Settlement(queue, id, claim.token, Complete(b"", random.choice([0, 300]))) for claim in claims]
    )
    await storage.put(job(Update(), delay=random.choice([None, 100])))  # it waits for the end of the window
    match random.randrange(4):
        case 0:
            await storage.put([NewJob(queue=queue, id=walker.new_id(), payload=b"w", delay=900)])
            counts = await storage.counts(queue)
            await storage.cancel(queue, [id])
            await storage.put(job(None), max(sum(counts[state] for state in WAITING) - 1, 1))
        case 1:
            await storage.put(job(Update(run_at=True), delay=random.choice([None, 100])))
        case 2:
            await storage.cancel(queue, [id])
            await storage.put(job(random.choice([None, Update()])))
        case _:
            await walker.claim([queue], 3000, 1)
            await storage.put(job(None))
    await storage.find(queue)


async def put_while_full(walker: Walker, queue: str) -> None:
    """Put jobs of all kinds into a queue that has exactly the jobs that it may have."""
    storage, random, new = walker.storage, walker.random, walker.new_id()
    jobs = [NewJob(queue=queue, id=new, payload=b"b", delay=random.choice([None, 2000]), window=4000)]
    await storage.put(jobs)
    counts = await storage.counts(queue)
    waiting = sum(counts[state] for state in WAITING)
    ended = [job.id for job in (await storage.find(queue, State.FAILED)).jobs]
    for id in random.sample([new, "a", "b", "c", "d", walker.new_id(), *ended[:3]], 3):
        update = Update() if random.random() < 0.5 else None
        await storage.put([NewJob(queue=queue, id=id, payload=b"b", update=update, window=4000)], max(waiting, 1))


async def move_in_backoff(walker: Walker, queue: str) -> None:
    """Move a job in backoff to another group, or give it a time by which it expires; then claim of both groups."""
    storage, random, id = walker.storage, walker.random, walker.new_id()
    groups = [f"m{walker.new_id()}", f"n{walker.new_id()}"]

    def job(id: str, group: str, **options: Any) -> NewJob:
        return NewJob(queue=queue, id=id, payload=b"k", group=group, **options)

    await storage.put([job(id, groups[0])])
    claims = [claim for claim in await walker.claim([queue], 3000, 9) if claim.id == id]
    retried = Retried(delay=random.choice([300, 2500]))
    await walker.settle([Settlement(queue, id, claim.token, retried) for claim in claims])
    more = [job(walker.new_id(), group) for group in groups for _ in range(2)]
    await storage.put(more)
    if random.random() < 0.5:
        await storage.put([job(id, groups[1], update=Update(run_at=random.random() < 0.2, group=True))])
    else:
        update = Update(run_at=False, reset_counts=True)
        await storage.put([job(id, groups[0], update=update, start_within=random.choice([1, 200]))])
        await asyncio.sleep(0.3)
    if random.random() < 0.3:
        await storage.cancel(queue, [more[0].id])
    await walker.claim([queue], 1500, 9)
    await storage.why(queue, id)


async def expire_head(walker: Walker, queue: str) -> None:
    """Let the next job of a group expire, or cancel it; then claim those behind it."""
    storage, random, group = walker.storage, walker.random, f"e{walker.new_id()}"
    jobs = [NewJob(queue=queue, id=walker.new_id(), payload=b"e", group=group) for _ in range(4)]
    within = random.choice([None, 150])
    jobs[1] = replace(jobs[1], start_within=within)
    await storage.put(jobs)
    held = [claim for claim in await walker.claim([queue], 1500, 9) if claim.id == jobs[0].id]
    await walker.settle([Settlement(queue, claim.id, claim.token, Complete(b"", 0)) for claim in held])
    if within is None:
        await storage.cancel(queue, [jobs[1].id])
    else:
        await asyncio.sleep(0.2)
    await walker.claim([queue], 1500, 9)


async def update_after_backoff(walker: Walker, queue: str) -> None:
    """Update a job whose backoff seems to be over while the clock is ahead, and claim behind it."""
    storage, random, id = walker.storage, walker.random, walker.new_id()
    group = random.choice([None, f"u{walker.new_id()}"])
    await storage.put([NewJob(queue=queue, id=id, payload=b"u", group=group)])
    held = [claim for claim in await walker.claim([queue], 3000, 9) if claim.id == id]
    await walker.settle(
        [Settlement(queue, id, claim.token, Retried(delay=random.choice([800, 2000]))) for claim in held]
    )
    for _ in range(2):
        await walker.claim([queue], 3000, 1)  # with a clock that is ahead it promotes the job, or claims it
        update = Update(run_at=False, reset_counts=False)
        await storage.put([NewJob(queue=queue, id=id, payload=b"u", group=group, update=update)])
    await storage.put([NewJob(queue=queue, id=walker.new_id(), payload=b"u", group=group, fresh=True)])
    await walker.claim([queue], 1500, 9)


async def reuse_id(walker: Walker, queue: str) -> None:
    """Let a job fail, purge it, and put its id again: nothing of the first job is left."""
    storage, random, id = walker.storage, walker.random, walker.new_id()
    error = JobError("Reused", id, key=f"{random.getrandbits(64):016x}").encode()
    keep = random.choice([0, 150, 150])
    for kind in (Retried(error=b"once"), Fail(error, keep) if random.random() < 0.7 else Complete(b"", keep)):
        if isinstance(kind, Retried):
            await storage.put([NewJob(queue=queue, id=id, payload=b"i", priority=1000)])
        held = [claim for claim in await walker.claim([queue], 3000, 1) if claim.id == id]
        await walker.report(held)
        await walker.settle([Settlement(queue, id, claim.token, kind) for claim in held])
    if random.random() < 0.7:
        await asyncio.sleep(0.2)
    await storage.purge([queue])
    await storage.error_groups(queue)
    await storage.put([NewJob(queue=queue, id=id, payload=b"i")])
    await storage.read(queue, id, "attempts")
    await storage.read(queue, id, "log")


async def change_group_limits(walker: Walker, queue: str) -> None:
    """Give groups that are held a first limit, or raise the limit of groups that are full; then claim."""
    random, scope = walker.random, Scope("groups", queue)
    await walker.set_limit(scope, random.choice([None, Limit(concurrency=1), Limit(concurrency=1, ordered=False)]))
    groups = [f"{letter}{walker.new_id()}" for letter in "lr"]
    await walker.storage.put([
        NewJob(queue=queue, id=walker.new_id(), payload=b"g", group=group) for _ in range(3) for group in groups
    ])  # fmt: skip
    await walker.claim([queue], 4000, 8)
    await walker.claim([queue], 4000, 2)  # full groups leave the rotation
    await walker.set_limit(scope, Limit(concurrency=random.choice([2, 3]), ordered=False, weight=2))
    await walker.claim([queue], 4000, 4)
    await walker.set_limit(scope, None)
    await walker.claim([queue], 4000, 2)


async def change_rate(walker: Walker, queue: str) -> None:
    """Give a queue a rate, put, start, change the rate, and start again."""
    random, scope = walker.random, Scope("queue", queue)
    for _ in range(2):
        rate = random.choice(["2/s", "10/s", "1/2s"])
        await walker.set_limit(scope, Limit(rate=rate, burst=random.choice([1, 2, 4])))
        for _ in range(random.choice([1, 2])):
            jobs = [NewJob(queue=queue, id=walker.new_id(), payload=b"r", fresh=True) for _ in range(2)]
            await walker.storage.put(jobs)
        await walker.storage.get_limit(scope)
        await walker.claim([queue], 1500, 2)
        await walker.storage.get_limit(scope)
        await asyncio.sleep(0.3 * random.random())
    await walker.claim([queue], 1500, 2)
    await walker.set_limit(scope, None)


async def lease_out(walker: Walker, queue: str) -> None:
    """Start as many jobs as a limit allows, let their leases end, and claim before they are taken back."""
    scope = walker.random.choice([Scope("queue", queue), Scope("family", "walk")])
    await walker.set_limit(scope, Limit(concurrency=walker.random.choice([1, 2])))
    for of in (queue, "walk/failures"):
        jobs = [NewJob(queue=of, id=walker.new_id(), payload=b"o", fresh=True) for _ in range(2)]
        await walker.storage.put(jobs)
    await walker.claim([queue], 300, 3)
    await walker.claim(["walk/failures"], 300, 1)
    await walker.claim([queue], 300, 3)
    await asyncio.sleep(0.35)
    await walker.claim([queue], 300, 3)
    await walker.set_limit(scope, None)


async def settle_after_stall(walker: Walker, queue: str) -> None:
    """Retry a run, have the next one stall, and send the first settlement again; report with the first token."""
    storage, id = walker.storage, walker.new_id()
    await storage.put([NewJob(queue=queue, id=id, payload=b"s", fresh=True, priority=1000)])
    first = [claim for claim in await walker.claim([queue], 3000, 1) if claim.id == id]
    settlements = [Settlement(queue, id, claim.token, Retried(delay=0)) for claim in first]
    await walker.settle(settlements)
    await walker.claim([queue], 200, 1)
    await walker.report(first)
    await asyncio.sleep(0.25)
    await storage.reap([queue])
    await walker.settle(settlements)


async def schedule(walker: Walker, queue: str) -> None:
    """Make schedules, ask for what is due as several workers, and fire it; at times the queue is deleted."""
    random, storage = walker.random, walker.storage
    schedules = walker.app.queue(queue).schedules
    for name in random.sample(SCHEDULES, 2):
        every = Every(random.choice([1, 2]) if name == "near" else random.choice([20, 60]))
        overlap: Any = random.choice(["queue", "queue", "skip", "allow", "replace"])
        await schedules.put(name, every, overlap=overlap, most=1, jitter=random.choice([0, 0.8]), result_ttl=1)
        await storage.due([queue], random.choice(["holder", "other"]))
    for _ in range(random.randint(2, 4)):
        await storage.due([queue], random.choice(["holder", "other"]))
        await TickFirer(walker.app, random.choice(["holder", "other"])).fire_due([queue], stays=True)
        await asyncio.sleep(random.random())
    if random.random() < 0.3:
        await storage.delete_queue(queue, False)
        await storage.due([queue], "other")
        await storage.claim([Request(queue, 1)], "walker", 1000, walker.new_token())
    for name in SCHEDULES:
        if random.random() < 0.6:
            await schedules.remove(name)


async def forget_queue(walker: Walker, queue: str) -> None:
    """Let a queue of its own become empty, purge it, and put a job again: its totals go on."""
    storage, queue = walker.storage, "walk/rare"
    for _ in range(2):
        await storage.put([NewJob(queue=queue, id=walker.new_id(), payload=b"t", fresh=True)])
        refs = await walker.claim([queue], 3000, 5)
        await walker.settle([Settlement(queue, ref.id, ref.token, Complete(b"", 0)) for ref in refs])
        await storage.purge([queue])
        await storage.purge([queue])


#: The sequences, each of which is a step of a walk.
SEQUENCES: tuple[Callable[[Any, str], Awaitable[None]], ...] = (
    complete_beside_lost, write_before_due, write_before_due, retry_often, list_runs, keep_window, keep_window,
    put_while_full, move_in_backoff, move_in_backoff, expire_head, update_after_backoff, reuse_id, change_group_limits,
    change_rate, lease_out, settle_after_stall, schedule, schedule, forget_queue,
)  # fmt: skip
