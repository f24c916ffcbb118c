"""The data of the browser scenarios: two weeks of history, failures of three causes, groups, a run, hostile names."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from pathlib import Path

import msgspec

from penstock import Cron, Entry, Limit, Penstock
from penstock.errors import ErrorKind, JobError, RunTimeout
from penstock.model.fingerprint import error_of, with_key
from penstock.model.history import NewLine, Report
from penstock.model.ids import new_token
from penstock.model.outcome import Complete, Fail, Resolution, Retried
from penstock.model.stats import BUCKETS, Histogram, bucket_of
from penstock.model.worker_info import Heartbeat, RunSummary
from penstock.storage.base import Claim, Request, Settlement
from penstock.storage.observing import RunTimes, observing_of

HOSTILE_QUEUE = "<img src=x onerror=alert(1)>/a:b"
HOSTILE_ID = "x/../%2F\n\0é"
SECRET = "hunter2"
BIG = 12_345_678_901_234_567_890

WEEK, DAY = 7 * 86_400_000, 86_400_000
KEPT = 7 * DAY

#: The first jobs of the failures have this many attempts.
ATTEMPTS = 11


class SeedClock:
    """A clock that the seed moves from two weeks ago to now."""

    def __init__(self) -> None:
        self.now = int(time.time() * 1000)
        self.ms = self.now - 14 * DAY

    def time(self) -> float:
        """Return the time in seconds."""
        return self.ms / 1000


class Seeder:
    """The storage with the clock of the seed."""

    def __init__(self, app: Penstock, clock: SeedClock, hostile: bool) -> None:
        self.app, self.clock, self.storage, self.hostile = app, clock, app.storage, hostile

    async def seed(self) -> None:
        """Store everything; the clock shows the present at the end."""
        await self._history(14 * 24 * 60 - 2 * 24 * 60, 60)
        await self._history(24 * 60, 10)
        await self.app.add_release("v1.4.1")
        await self._history(24 * 60 - 120, 10)
        await self._history(110, 1)
        await self.app.add_release("v1.4.2")
        await self._failures()
        await self._history(8, 1)
        self.clock.ms = self.clock.now
        await self._waiting()
        await self._running()

    async def _history(self, minutes: int, step: int) -> None:
        """Let jobs arrive and end for some minutes, with a sample at each step."""
        observing = observing_of(self.storage)
        for minute in range(0, minutes, step):
            wave = 1 + 0.4 * math.sin(self.clock.ms / DAY * 6.283) + 0.3 * math.sin(self.clock.ms / 2_400_000 * 6.283)
            count = max(1, int(40 * wave + (minute % 7)))
            await self.app.queue("mail").enqueue_many([{"to": "ann@example.org"}] * count)
            claims = await self._claim("mail", count)
            end: list[Resolution] = [Complete(b"null", 0)] * len(claims)
            if minute % 40 < step and claims:
                error = with_key(JobError("ValueError", f"bad address {minute}", ErrorKind.RETRIABLE), "mail")
                end[0] = Fail(error.encode(), 0)
            await self._settle(claims, end)
            if observing is not None:
                slow = 0.05 + 0.2 * wave**2
                times = RunTimes("mail", spread(slow * 4, count), spread(slow, count))
                await observing.record_stats("w1", [times])
            self.clock.ms += step * 60_000

    async def _failures(self) -> None:
        """Let 412 jobs fail by a connection, 5 by a value, and 40 by a timeout."""
        mail, reports = self.app.queue("mail"), self.app.queue("reports")
        payloads = [{"to": f"user{n}@example.org", "password": SECRET, "n": BIG} for n in range(412)]
        await mail.enqueue_many(payloads)
        for attempt in range(1, ATTEMPTS + 1):
            claims = await self._claim("mail", 500)
            self.clock.ms += 200
            error = connection_error()
            last = attempt == ATTEMPTS
            end: Resolution = Fail(error, KEPT) if last else Retried(delay=attempt * 1000, error=error)
            await self._settle(claims, [end] * len(claims))
            self.clock.ms += attempt * 1000
        await mail.enqueue_many([{"to": f"bad {n}"} for n in range(5)])
        claims = await self._claim("mail", 5)
        await self._settle(claims, [Fail(value_error(), KEPT)] * len(claims))
        await reports.enqueue_many([{"month": n} for n in range(40)])
        claims = await self._claim("reports", 40)
        timeout = with_key(error_of(RunTimeout("the run took longer than 30 s"), ErrorKind.TIMEOUT), "reports")
        await self._settle(claims, [Fail(timeout.encode(), KEPT)] * len(claims))

    async def _waiting(self) -> None:
        """Let jobs wait in every way there is."""
        app, clock = self.app, self.clock
        clock.ms = clock.now - 90_000
        await app.queue("mail").enqueue_many([{"to": f"new{n}@example.org", "password": SECRET} for n in range(30)])
        claims = await self._claim("mail", 30)
        await self._settle(claims, [Complete(b'"sent"', KEPT)] * len(claims))
        clock.ms = clock.now - 4_000
        await app.queue("mail").enqueue_many([{"to": f"new{n}@example.org", "password": SECRET} for n in range(120)])
        reports = app.queue("reports")
        clock.ms = clock.now - 7_200_000
        await reports.enqueue_many([{"month": n} for n in range(12)])
        await reports.pause(by="ann")
        clock.ms = clock.now - 1_000
        await reports.enqueue_many([Entry({"month": n}, delay=3600 * (n + 1)) for n in range(2)])
        await reports.schedules.put("nightly", Cron("0 3 * * *", tz="Europe/Berlin"), payload={"month": "last"})
        clock.ms = clock.now - 720_000
        orders = app.queue("orders")
        await orders.enqueue_many([Entry({"order": n}, group=f"customer-{n % 5 + 1}") for n in range(25)])
        claims = await self._claim("orders", 1)
        await self._settle(claims, [Retried(delay=3_600_000, error=connection_error())])
        clock.ms = clock.now
        if self.hostile:
            hostile = app.queue(HOSTILE_QUEUE)
            await hostile.enqueue({"a": "<script>alert(1)</script>"}, id=HOSTILE_ID, group="<b>g</b>")
        await app.queue("mail").set_limit(Limit(concurrency=100, rate="100/s"))

    async def _running(self) -> None:
        """Let one job run on a worker, at 40 %, with lines in its log."""
        self.clock.ms = self.clock.now - 30_000
        await self.app.queue("long").enqueue({"video": "a.mp4"}, id="encode-1")
        [claim] = await self._claim("long", 1, lease=3_600_000)
        lines = (
            NewLine("reads https://bob:letmein@media.example.org/a.mp4"),
            NewLine("<b>frame</b> 12 is damaged", "warning"),
        )
        progress = msgspec.msgpack.encode([0.4, "frame 400"])
        report = Report(queue="long", id=claim.id, token=claim.token, progress=progress, lines=lines)
        await self.storage.report([report])
        self.clock.ms = self.clock.now
        queues = ["mail", "long", *[HOSTILE_QUEUE] * self.hostile]
        beat = Heartbeat(
            host="web-1",
            pid=4711,
            queues=queues,
            started=self.clock.now - DAY,
            capacity=100,
            busy=10,
            memory=84_000_000,
            running=1,
            runs=[RunSummary("long", claim.id, 1, 30_000)],
            lease_age=400,
            release="v1.4.2",
        )
        await self.storage.beat("w1", 3_600_000, beat.encode())

    async def _claim(self, queue: str, count: int, lease: int = 60_000) -> list[Claim]:
        found = await self.storage.claim([Request(queue, count)], "w1", lease, new_token())
        return found.claims

    async def _settle(self, claims: list[Claim], ends: list[Resolution]) -> None:
        pairs = zip(claims, ends, strict=True)
        await self.storage.settle([Settlement(claim.queue, claim.id, claim.token, end) for claim, end in pairs])


def spread(seconds: float, count: int) -> Histogram:
    """Return a histogram of durations around a value."""
    counts = [0] * BUCKETS
    for share, times in ((0.6, 0.5), (0.3, 1.0), (0.1, 2.5)):
        counts[bucket_of(seconds * times * 1e6)] += max(1, round(count * share))
    return Histogram(tuple(counts), int(seconds * 1e6 * count))


def connection_error() -> bytes:
    """Return the stored error of a handler that could not connect."""
    return as_error(ConnectionError("host 10.0.0.7 is not reachable at smtp://bob:letmein@mail.example.org"))


def value_error() -> bytes:
    """Return the stored error of a handler that got a bad address."""
    return as_error(ValueError("bad address 'bad 1'"))


def as_error(error: Exception) -> bytes:
    """Return an exception as a stored error, with a traceback of own and library frames."""
    record = error_of(error)
    library = f"{Path(asyncio.__file__).parent}/runners.py"
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/app/jobs.py", line 41, in send',
        "    smtp.connect(host)",
        f'  File "{library}", line 118, in run',
        "    return self._loop.run_until_complete(task)",
        f'  File "{library}", line 190, in result',
        "    raise self._exception",
        f"{record.type}: {record.message}",
    ]
    return with_key(msgspec.structs.replace(record, traceback="\n".join(lines)), "mail").encode()


async def seed(url: str, namespace: str = "penstock", hostile: bool = True) -> None:
    """Fill a storage; without hostile names for pictures."""
    clock = SeedClock()
    async with Penstock(url, namespace=namespace, clock=clock) as app:
        await Seeder(app, clock, hostile).seed()


if __name__ == "__main__":
    asyncio.run(seed(sys.argv[1], hostile=False))
