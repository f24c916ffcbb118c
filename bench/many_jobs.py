"""Many jobs in every state, put and settled on a storage directly: the data of the workload `dashboard`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock import Every, Penstock
from penstock.errors import ErrorKind, JobError
from penstock.model.ids import new_ids, new_token
from penstock.model.job import NewJob
from penstock.model.worker_info import Heartbeat
from penstock.storage.base import Complete, Fail, Request, Resolution, Retried, Settlement, Storage

__all__ = ["ERROR_GROUPS", "LARGEST_KEY", "QUEUE", "WORKER", "add_schedules", "fill"]

#: The queue with most of the jobs, the number of others with ten each, and the one worker.
QUEUE, OTHERS, WORKER = "mail", 20, "w1"

#: The error groups of the failed jobs; half of the jobs are in the first one.
ERROR_GROUPS = 50
LARGEST_KEY = f"{0:016x}"

#: The schedules of the queue, each with a last tick.
SCHEDULES = 20

#: The groups of the queue, at least.
GROUPS = 200

PAYLOAD = b'{"to":"ann@example.org","user":12345}'
CHUNK, KEPT, LATER = 1000, 7 * 86_400_000, 30 * 86_400_000


def error_of(n: int) -> bytes:
    """Return the error of the n-th failed job."""
    group = 0 if n % 2 else n // 2 % ERROR_GROUPS
    return JobError("ConnectionError", f"host {group} not reachable", ErrorKind.RETRIABLE, key=f"{group:016x}").encode()


def chunks(count: int) -> Iterator[list[str]]:
    """Yield new ids in chunks."""
    for at in range(0, count, CHUNK):
        yield new_ids(min(CHUNK, count - at))


async def put(storage: Storage, count: int, queue: str = QUEUE, groups: int = 0, run_at: int | None = None) -> None:
    """Put jobs that wait."""
    done = 0
    for ids in chunks(count):
        names = [f"customer-{(done + i) % groups}" if groups else None for i in range(len(ids))]
        pairs = zip(ids, names, strict=True)
        jobs = [
            NewJob(queue=queue, id=id, payload=PAYLOAD, fresh=True, run_at=run_at, group=name) for id, name in pairs
        ]
        await storage.put(jobs)
        done += len(ids)


async def settle(storage: Storage, count: int, end: Callable[[int], Resolution]) -> None:
    """Put jobs and end their runs."""
    done = 0
    for ids in chunks(count):
        await storage.put([NewJob(queue=QUEUE, id=id, payload=PAYLOAD, fresh=True) for id in ids])
        claims = (await storage.claim([Request(QUEUE, len(ids))], WORKER, 600_000, new_token())).claims
        settlements = [Settlement(c.queue, c.id, c.token, end(done + i)) for i, c in enumerate(claims)]
        await storage.settle(settlements)
        done += len(ids)


async def cancel(storage: Storage, count: int, run_at: int) -> None:
    """Put jobs and cancel them."""
    for ids in chunks(count):
        await storage.put([NewJob(queue=QUEUE, id=id, payload=PAYLOAD, fresh=True, run_at=run_at) for id in ids])
        await storage.cancel(QUEUE, ids, ttl=KEPT)


async def add_schedules(app: Penstock) -> None:
    """Add schedules to the queue with most of the jobs, and put a job of each."""
    schedules = app.queue(QUEUE).schedules
    for n in range(SCHEDULES):
        await schedules.put(f"report-{n:02}", Every(hours=24), payload={"to": "ann@example.org"})
        await schedules.trigger(f"report-{n:02}")


async def fill(storage: Storage, count: int) -> None:
    """Put jobs: 45 % queued, nearly half of them in groups, the others scheduled, retrying, running or ended."""
    now, part = await storage.time(), count // 20
    await settle(storage, 3 * part, lambda n: Complete(b'{"sent":true}', KEPT))
    await settle(storage, 3 * part, lambda n: Fail(error_of(n), KEPT))
    await settle(storage, part, lambda n: Retried(delay=LATER, error=error_of(n)))
    await cancel(storage, part, now + LATER)
    await put(storage, 3 * part, run_at=now + LATER)
    await put(storage, 4 * part, groups=max(part, GROUPS))
    await put(storage, 5 * part)
    for n in range(OTHERS):
        await put(storage, 10, f"queue-{n:02}")
    await storage.claim([Request(QUEUE, 10)], WORKER, 86_400_000, new_token())
    beat = Heartbeat(host="web-1", pid=4711, queues=[QUEUE], capacity=100, busy=10, running=10)
    await storage.beat(WORKER, 86_400_000, beat.encode())
