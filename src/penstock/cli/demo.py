"""`penstock demo`: three kinds of jobs, worked in this process, and what became of them."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock import Entry, Job, Penstock, PenstockError, PermanentError, Worker
from penstock.storage import redact

__all__ = ["demo"]

PLAIN, GROUPED, FAILING = "resize", "mail", "charge"
QUEUES = (PLAIN, GROUPED, FAILING)

#: Jobs of each group, so that an order is there to be kept.
PER_GROUP = 20

#: Of the failing kind, every job whose number modulo 3 is this one can never succeed.
HOPELESS = 2


class Unusable(click.ClickException):
    """The storage cannot be used as asked: one line, exit code 2."""

    exit_code = 2


@dataclass
class Seen:
    """What the handlers saw."""

    runs: Counter[str] = field(default_factory=Counter[str])
    retried: Counter[str] = field(default_factory=Counter[str])
    order: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict[str, list[int]](list))

    def note(self, job: Job) -> None:
        self.runs[job.queue] += 1
        if job.attempt > 1:
            self.retried[job.queue] += 1


@dataclass
class Report:
    """What became of the jobs: how many of each queue, how long it took, what the handlers saw."""

    counts: dict[str, dict[str, int]]
    enqueueing: float
    working: float
    seen: Seen
    expected: dict[str, list[int]]

    @property
    def finished(self) -> int:
        return sum(done(counts) for counts in self.counts.values())

    @property
    def out_of_order(self) -> list[str]:
        return [group for group, numbers in self.expected.items() if self.seen.order[group] != numbers]


@click.command()
@click.option("--url", help="Where to keep the jobs, e.g. redis://localhost:6379.  [default: a temporary SQLite file]")
@click.option("--jobs", type=click.IntRange(3, 1_000_000), default=600, show_default=True, help="How many, in all.")
def demo(url: str | None, jobs: int) -> None:
    """Enqueue jobs of three kinds, work them here, and show what happened.

    A third are plain; a third come in groups that must keep their order although one job of each
    fails at first; a third fail once or for good.
    """
    console = Console(highlight=False, soft_wrap=not os.isatty(1))
    with place(url) as (where, shown):
        console.print(f"storage: {shown}")
        report = asyncio.run(run(where, shown, jobs, console))
    show(report, console)
    if report.finished != jobs or report.out_of_order:
        raise click.ClickException("the demo did not end as it must: see the table above")


@contextmanager
def place(url: str | None) -> Generator[tuple[str, str], None, None]:
    """Where the jobs are kept, and how to name that place without a password."""
    if url is not None:
        yield url, redact(url)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as directory:
        path = os.path.join(directory, "penstock.db")
        yield f"sqlite:{path}", f"{path} (SQLite, removed at the end)"


async def run(url: str, shown: str, jobs: int, console: Console) -> Report:
    """Enqueue everything, drain it, and count."""
    seen = Seen()
    async with opened(url, shown) as app:
        add_handlers(app, seen)
        entries = make_entries(jobs)
        began = time.perf_counter()
        for queue in QUEUES:
            await app.queue(queue).enqueue_many(entries[queue])
        enqueued = time.perf_counter()
        watcher = asyncio.create_task(watch(app, jobs, console))
        try:
            await Worker(app).drain(scheduled=True)
            worked = time.perf_counter()
            await watcher
            counts = {queue: await count(app, queue) for queue in QUEUES}
        finally:
            watcher.cancel()
            for queue in QUEUES:
                await app.queue(queue).delete()
    return Report(counts, enqueued - began, worked - enqueued, seen, expected_order(entries[GROUPED]))


@asynccontextmanager
async def opened(url: str, shown: str) -> AsyncGenerator[Penstock, None]:
    """The app on its storage, in a namespace of its own; a storage that cannot be used is one clear line."""
    try:
        app = Penstock(url, namespace=f"penstock-demo-{secrets.token_hex(4)}")
        await app.__aenter__()
    except (PenstockError, ValueError, OSError, ImportError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Unusable(f"cannot use {shown}: {reason}") from error
    try:
        yield app
    finally:
        await app.__aexit__(None, None, None)


def add_handlers(app: Penstock, seen: Seen) -> None:
    """One handler for each kind of job."""

    @app.handler(PLAIN, concurrency=20)
    async def resize(payload: dict[str, Any], job: Job) -> str:
        seen.note(job)
        await asyncio.sleep(0.001)
        return f"{payload['number']}.thumb"

    @app.handler(GROUPED, concurrency=20, max_retries=3, min_backoff=0.05)
    async def mail(payload: dict[str, Any], job: Job) -> None:
        seen.note(job)
        number: int = payload["number"]
        if number == 2 and job.attempt == 1:
            raise ConnectionError("the second mail of every group fails at first, and holds its group")
        seen.order[job.group or ""].append(number)

    @app.handler(FAILING, concurrency=20, max_retries=1, min_backoff=0.05)
    async def charge(payload: dict[str, Any], job: Job) -> str:
        seen.note(job)
        number: int = payload["number"]
        if number % 6 == HOPELESS:
            raise PermanentError("this one is refused at once")
        if number % 3 == HOPELESS:
            raise RuntimeError("this one fails every time")
        if job.attempt == 1:
            raise RuntimeError("this one fails once")
        return "paid"

    del resize, mail, charge  # the app holds them


def make_entries(jobs: int) -> dict[str, list[Entry]]:
    """As many jobs as asked for, in three parts; the groups take turns."""
    third = jobs // 3
    groups = max(1, third // PER_GROUP)
    return {
        PLAIN: [Entry({"number": n}) for n in range(jobs - 2 * third)],
        GROUPED: [Entry({"number": n // groups + 1}, group=f"customer-{n % groups}") for n in range(third)],
        FAILING: [Entry({"number": n}) for n in range(third)],
    }


def expected_order(entries: list[Entry]) -> dict[str, list[int]]:
    """The numbers of each group as they were enqueued."""
    expected: defaultdict[str, list[int]] = defaultdict(list)
    for entry in entries:
        expected[str(entry.group)].append(entry.payload["number"])
    return dict(expected)


async def count(app: Penstock, queue: str) -> dict[str, int]:
    return {str(state): number for state, number in (await app.queue(queue).counts()).items()}


def done(counts: dict[str, int]) -> int:
    return counts["completed"] + counts["failed"]


async def watch(app: Penstock, jobs: int, console: Console) -> None:
    """Show how many jobs are finished until all are: a bar on a terminal, else a line a second."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("working", total=jobs)
        printed = time.monotonic()
        while True:
            finished = sum([done(await count(app, queue)) for queue in QUEUES])
            bar.update(task, completed=finished)
            if not console.is_terminal and (finished == jobs or time.monotonic() - printed > 1):
                printed = time.monotonic()
                console.print(f"working: {finished} of {jobs} jobs finished")
            if finished == jobs:
                return
            await asyncio.sleep(0.1)


def show(report: Report, console: Console) -> None:
    """The table, and three lines below it."""
    table = Table("queue", "kind")
    for heading in ("jobs", "completed", "failed", "runs", "retries"):
        table.add_column(heading, justify="right")
    kinds = {PLAIN: "plain", GROUPED: "in groups", FAILING: "failing"}
    for queue, counts in report.counts.items():
        numbers = (sum(counts.values()), counts["completed"], counts["failed"])
        seen = (report.seen.runs[queue], report.seen.retried[queue])
        table.add_row(queue, kinds[queue], *(str(n) for n in numbers + seen))
    console.print(table)
    if report.out_of_order:
        console.print(f"group order: BROKEN in {', '.join(report.out_of_order)}")
    else:
        console.print(f"group order: exact in all {len(report.expected)} groups, retries included")
    runs = sum(report.seen.runs.values())
    console.print(f"enqueued in {report.enqueueing:.2f} s, worked in {report.working:.2f} s")
    console.print(f"throughput: {runs / report.working:,.0f} runs a second, one process, handlers and backoff included")
