"""`penstock worker ls`: the list of workers."""

from __future__ import annotations

from datetime import datetime

import click

from penstock import WorkerInfo
from penstock.cli.base import Command, run
from penstock.cli.output import (
    DIM,
    Cell,
    Column,
    Styled,
    bar,
    echo_json,
    format_bytes,
    format_duration,
    is_terminal,
    json_option,
    print_table,
)
from penstock.cli.target import Target, target_options
from penstock.ops.overview import read_overview

__all__ = ["COLUMNS", "id_cell", "load_cell", "load_of", "ls", "worker_row"]

COLUMNS = [
    Column("worker", elastic=True), Column("host"), Column("pid", True), Column("processes", True), Column("busy"),
    Column("runs", True), Column("memory", True), Column("up", True), Column("seen", True),
    Column("queues", elastic=True),
]  # fmt: skip


@click.command(
    "ls",
    cls=Command,
    examples="""
        penstock worker ls
        penstock worker ls --json | jq '.[] | {id, busy, capacity}'
    """,
)
@json_option
@target_options
def ls(target: Target, as_json: bool) -> None:
    """List the workers: their host, load and queues.

    The column busy has the units in use, and with `+` the runs of handlers with concurrency=n, which hold
    no units.
    """

    async def work() -> tuple[list[WorkerInfo], datetime]:
        async with target.opened() as app:
            overview = await read_overview(app, [])
            return overview.workers, overview.at

    workers, now = run(work())
    if as_json:
        echo_json(workers)
    else:
        print_table(
            COLUMNS,
            [worker_row(worker, now) for worker in workers],
            "no workers here; start one: penstock worker MODULE:APP",
        )


def worker_row(worker: WorkerInfo, now: datetime) -> list[Cell]:
    """Return the row of a worker."""
    return [
        id_cell(worker),
        worker.host,
        str(worker.pid),
        str(len(worker.processes)),
        load_cell(worker, bars=is_terminal()),
        str(worker.running),
        format_bytes(worker.memory) if worker.memory else Styled("-", DIM),
        "-" if worker.started_at is None else format_duration((now - worker.started_at).total_seconds()),
        Styled(f"{format_duration((now - worker.seen_at).total_seconds())} ago", DIM),
        ", ".join(worker.queues),
    ]


def load_cell(worker: WorkerInfo, *, bars: bool) -> Styled:
    """Return the units in use of a worker's capacity and its runs of `concurrency=n`, with a bar if `bars`."""
    share = load_of(worker)
    style = "red" if share >= 0.95 else "yellow" if share >= 0.7 else "green"
    numbers = f"{worker.busy}/{worker.capacity}"
    if worker.allowed < worker.capacity:
        numbers = f"{worker.busy}/{worker.allowed} of {worker.capacity}"
    if worker.slots:
        numbers = f"{numbers} + {worker.slots_used}/{worker.slots}"
    return Styled(f"{bar(share, 1)} {numbers}" if bars else numbers, style)


def load_of(worker: WorkerInfo) -> float:
    """Return how full a worker is: by its units, or by its handlers with `concurrency=n`, which hold none."""
    units = worker.busy / worker.capacity if worker.capacity else 0.0
    return max(units, worker.slots_used / worker.slots if worker.slots else 0.0)


def id_cell(worker: WorkerInfo) -> Styled:
    """Return the id of a worker, marked if another one has it too."""
    return Styled(f"{worker.id} (id used twice)", "bold red") if worker.duplicate else Styled(worker.id, "bold")
