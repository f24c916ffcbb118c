"""`penstock bench`: measure a storage from this machine, with empty jobs in a temporary namespace."""

from __future__ import annotations

import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager

import click
import msgspec

from penstock import Penstock, Worker
from penstock.cli.base import Command, debug_option, run
from penstock.cli.output import Column, count, echo, echo_json, is_terminal, json_option, print_table
from penstock.cli.secrets import redact_secrets, register_secrets
from penstock.cli.values import IntegerType
from penstock.storage import redact

__all__ = ["BenchResult", "bench", "measure"]

#: How many calls are made one after another, each waiting for its result, to measure latency.
SINGLE_CALLS = 200


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Measured figures: rates in jobs per second, times in milliseconds."""

    where: str
    jobs: int
    enqueue_many: float
    enqueue_one: float
    drain: float
    call_p50_ms: float
    call_p99_ms: float


@click.command(
    cls=Command,
    examples="""
        penstock bench                                  # a temporary SQLite file
        penstock bench --url redis://localhost:6379
        penstock bench --url redis://localhost:6379 --jobs 100000 --json
    """,
)
@click.option("--url", help="The storage to measure.  [default: a temporary SQLite file]")
@click.option("--jobs", type=IntegerType(100, 10_000_000), default=10_000, show_default=True, help="How many jobs.")
@json_option
@debug_option
def bench(url: str | None, jobs: int, as_json: bool) -> None:
    """Measure how fast a storage is from here: enqueue and run jobs that do nothing, in one process.

    The jobs are in a namespace of their own, which is removed at the end; nothing else is touched. The
    figures hold for this machine, this storage and the network between them, at this moment.
    """
    with measured_url(url) as where:
        if is_terminal() and not as_json:
            echo(f"measuring {redact_secrets(redact(where))} with {count(jobs, 'job')} ...", err=True)
        found = run(measure(where, jobs))
    if as_json:
        echo_json(found)
        return
    rows = [
        ["enqueue, many jobs per call", f"{found.enqueue_many:,.0f}", "jobs/s"],
        ["enqueue, one job per call", f"{found.enqueue_one:,.0f}", "jobs/s"],
        ["run, concurrency 100, one process", f"{found.drain:,.0f}", "jobs/s"],
        ["call until its result, median", f"{found.call_p50_ms:.2f}", "ms"],
        ["call until its result, 99th percentile", f"{found.call_p99_ms:.2f}", "ms"],
    ]
    print_table([Column("measurement"), Column("value", True), Column("")], rows, "")


@contextmanager
def measured_url(url: str | None) -> Generator[str, None, None]:
    """Yield the URL to measure: the given one, or that of a temporary file."""
    if url:
        yield register_secrets(url)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as directory:
        yield f"sqlite:{os.path.join(directory, 'penstock.db')}"


async def measure(url: str, jobs: int) -> BenchResult:
    """Measure a storage; the jobs and their namespace are removed even if it fails."""
    app = Penstock(url, namespace=f"penstock-bench-{secrets.token_hex(6)}")

    @app.handler("bench", concurrency=100)
    async def echo_payload(payload: int) -> int:
        return payload

    queue = app.queue("bench")
    async with app:
        try:
            began = time.perf_counter()
            await queue.enqueue_many(list(range(jobs)))
            put = time.perf_counter()
            await Worker(app).drain()
            drained = time.perf_counter()
            single, waits = min(jobs, 1000), list[float]()
            for number in range(single):
                await queue.enqueue(number)
            one_by_one = time.perf_counter()
            await Worker(app).drain()
            async with Worker(app):
                for number in range(SINGLE_CALLS):
                    called = time.perf_counter()
                    await queue.call(number)
                    waits.append((time.perf_counter() - called) * 1000)
        finally:
            await queue.delete()
            await remove_namespace(app)
    quantiles = statistics.quantiles(waits, n=100)
    return BenchResult(
        where=redact_secrets(redact(url)), jobs=jobs, enqueue_many=jobs / (put - began), drain=jobs / (drained - put),
        enqueue_one=single / (one_by_one - drained), call_p50_ms=statistics.median(waits), call_p99_ms=quantiles[98],
    )  # fmt: skip


async def remove_namespace(app: Penstock) -> None:
    """Remove the rest of the namespace, which `queue.delete` leaves: workers and finished jobs."""
    for worker in await app.storage.workers():
        await app.storage.beat(worker.id, 0)
    await app.storage.purge(["bench"])
    forget_namespace = getattr(app.storage, "forget_namespace", None)
    if forget_namespace is not None:
        await forget_namespace()
