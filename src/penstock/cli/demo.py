"""`penstock demo`: enqueue three kinds of jobs, run them in this process, and print the counts."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock import Entry, Job, Penstock, PermanentError, Queue, Worker
from penstock.cli.base import Command, CommandError, debug_option
from penstock.cli.living_demo import run_living_demo
from penstock.cli.output import Column, console, echo, is_terminal, print_table
from penstock.cli.secrets import redact_secrets, register_secrets
from penstock.cli.values import IntegerType
from penstock.storage import redact

__all__ = ["demo"]

PLAIN, GROUPED, FAILING = "resize", "mail", "charge"
KINDS = (PLAIN, GROUPED, FAILING)

#: Jobs in each group: enough that a wrong order would show.
PER_GROUP = 20

#: In the failing queue, a job whose number modulo 3 is this one fails at every attempt.
ALWAYS_FAILING = 2


@dataclass
class RunRecorder:
    """Runs and retries per queue, and the order of runs per group, as the handlers saw them."""

    runs: Counter[str] = field(default_factory=Counter[str])
    retried: Counter[str] = field(default_factory=Counter[str])
    order: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict[str, list[int]](list))

    def record(self, job: Job) -> None:
        kind = job.queue.rpartition("/")[2]
        self.runs[kind] += 1
        if job.attempt > 1:
            self.retried[kind] += 1


@dataclass
class Report:
    """Result of the demo: jobs by queue and state, seconds taken, and the record of the handlers."""

    counts: dict[str, dict[str, int]]
    enqueueing: float
    working: float
    recorded: RunRecorder
    expected: dict[str, list[int]]

    @property
    def finished(self) -> int:
        return sum(count_finished(counts) for counts in self.counts.values())

    @property
    def out_of_order(self) -> list[str]:
        return [group for group, numbers in self.expected.items() if self.recorded.order[group] != numbers]


@click.command(
    cls=Command,
    examples="""
        penstock demo
        penstock demo --url redis://localhost:6379 --jobs 10000
        penstock demo --dashboard
    """,
)
@click.option("--url", help="Where to keep the jobs, e.g. redis://localhost:6379.  [default: a temporary SQLite file]")
@click.option("--jobs", type=IntegerType(3, 1_000_000), default=600, show_default=True, help="How many jobs in all.")
@click.option("--dashboard", is_flag=True, help="Serve the dashboard, with jobs that come and go until Ctrl-C.")
@debug_option
def demo(url: str | None, jobs: int, dashboard: bool) -> None:
    """Enqueue and run three kinds of example jobs, and show how they ended.

    A third are plain. A third are in groups, which keep their order although one job of each group fails
    at first. A third fail once, or at every attempt.
    """
    with without_log_of_runs(), demo_url(url) as (where, shown):
        echo(f"storage: {shown}")
        if dashboard:
            run_living_demo(where)
            return
        report = asyncio.run(run(where, jobs))
    show(report)
    if report.finished != jobs or report.out_of_order:
        raise CommandError("jobs are missing or ran out of order: see the table above")


@contextmanager
def without_log_of_runs() -> Generator[None, None, None]:
    """Log no failed runs inside the block: the jobs of the demo fail on purpose, and the table counts them."""
    logger = logging.getLogger("penstock.worker.run_log")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def demo_url(url: str | None) -> Generator[tuple[str, str], None, None]:
    """Yield the URL of the storage, and the same as it may be printed, without a password."""
    if url:
        yield register_secrets(url), redact_secrets(redact(url))
        return
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as directory:
        path = os.path.join(directory, "penstock.db")
        yield f"sqlite:{path}", f"{path} (SQLite, removed at the end)"


async def run(url: str, jobs: int) -> Report:
    """Enqueue all jobs, run them, count them, and delete the queues."""
    recorder = RunRecorder()
    entries = make_entries(jobs)
    async with Penstock(url, namespace="penstock-demo") as app:
        # Random names keep two demos on one server apart; one family keeps them on one node of a Cluster.
        prefix = f"demo/{secrets.token_hex(4)}"
        queues = {kind: app.queue(f"{prefix}/{kind}") for kind in KINDS}
        add_handlers(app, prefix, recorder)
        began = time.perf_counter()
        watcher: asyncio.Task[None] | None = None
        try:
            for kind, queue in queues.items():
                await queue.enqueue_many(entries[kind])
            enqueued = time.perf_counter()
            watcher = asyncio.create_task(watch(queues, jobs))
            await Worker(app).drain(scheduled=True)
            worked = time.perf_counter()
            with suppress(TimeoutError):  # it returns when all jobs are finished, which it never does if one is lost
                await asyncio.wait_for(watcher, 2)
            counts = {kind: await read_counts(queue) for kind, queue in queues.items()}
        finally:
            if watcher:
                watcher.cancel()
            for queue in queues.values():
                await queue.delete()
    return Report(counts, enqueued - began, worked - enqueued, recorder, expected_order(entries[GROUPED]))


def add_handlers(app: Penstock, prefix: str, recorder: RunRecorder) -> None:
    """Register one handler for each kind of job."""

    @app.handler(f"{prefix}/{PLAIN}", concurrency=20)
    async def resize(payload: dict[str, int], job: Job) -> str:
        recorder.record(job)
        await asyncio.sleep(0.001)
        return f"{payload['number']}.thumb"

    @app.handler(f"{prefix}/{GROUPED}", concurrency=20, max_retries=3, min_backoff=0.05)
    async def mail(payload: dict[str, int], job: Job) -> None:
        recorder.record(job)
        if payload["number"] == 2 and job.attempt == 1:
            raise ConnectionError("the second mail of every group fails at first, and holds its group")
        recorder.order[job.group or ""].append(payload["number"])

    @app.handler(f"{prefix}/{FAILING}", concurrency=20, max_retries=1, min_backoff=0.05)
    async def charge(payload: dict[str, int], job: Job) -> str:
        recorder.record(job)
        if payload["number"] % 6 == ALWAYS_FAILING:
            raise PermanentError("this one is refused at once")
        if payload["number"] % 3 == ALWAYS_FAILING:
            raise RuntimeError("this one fails every time")
        if job.attempt == 1:
            raise RuntimeError("this one fails once")
        return "paid"

    del resize, mail, charge  # the app keeps them


def make_entries(jobs: int) -> dict[str, list[Entry]]:
    """Return `jobs` entries in three parts; those of the groups alternate."""
    third = jobs // 3
    groups = max(1, third // PER_GROUP)
    return {
        PLAIN: [Entry({"number": n}) for n in range(jobs - 2 * third)],
        GROUPED: [Entry({"number": n // groups + 1}, group=f"customer-{n % groups}") for n in range(third)],
        FAILING: [Entry({"number": n}) for n in range(third)],
    }


def expected_order(entries: list[Entry]) -> dict[str, list[int]]:
    """Return the numbers of each group in the order in which they were enqueued."""
    expected: defaultdict[str, list[int]] = defaultdict(list)
    for entry in entries:
        expected[str(entry.group)].append(entry.payload["number"])
    return dict(expected)


async def read_counts(queue: Queue) -> dict[str, int]:
    return {str(state): number for state, number in (await queue.counts()).items()}


def count_finished(counts: dict[str, int]) -> int:
    return counts["completed"] + counts["failed"]


async def watch(queues: dict[str, Queue], jobs: int) -> None:
    """Show the number of finished jobs until all are: as a bar on a terminal, else one line a second."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(), disable=not is_terminal()) as bar:
        task = bar.add_task("working", total=jobs)
        printed = time.monotonic()
        while True:
            finished = sum([count_finished(await read_counts(queue)) for queue in queues.values()])
            bar.update(task, completed=finished)
            if not is_terminal() and (finished == jobs or time.monotonic() - printed > 1):
                printed = time.monotonic()
                echo(f"working: {finished} of {jobs} jobs finished")
            if finished == jobs:
                return
            await asyncio.sleep(0.1)


def show(report: Report) -> None:
    """Print the table of queues, and below it order and speed."""
    columns = [Column("queue"), Column("kind")]
    columns += [Column(heading, True) for heading in ("jobs", "completed", "failed", "runs", "retries")]
    kinds = {PLAIN: "plain", GROUPED: "in groups", FAILING: "failing"}
    rows: list[list[str]] = []
    for queue, counts in report.counts.items():
        numbers = (sum(counts.values()), counts["completed"], counts["failed"])
        seen = (report.recorded.runs[queue], report.recorded.retried[queue])
        rows.append([queue, kinds[queue], *(f"{number:,}" for number in numbers + seen)])
    print_table(columns, rows, "")
    if report.out_of_order:
        echo(f"group order: BROKEN in {', '.join(report.out_of_order)}")
    else:
        echo(f"group order: exact in every group ({len(report.expected)}), retries included")
    runs = sum(report.recorded.runs.values())
    echo(f"enqueued in {report.enqueueing:.2f} s, worked in {report.working:.2f} s")
    echo(f"throughput: {runs / report.working:,.0f} runs a second, one process, handlers and backoff included")
