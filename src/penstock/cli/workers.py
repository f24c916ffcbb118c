"""`penstock worker ls`, `quiet` and `stop`: the list of workers, and requests to them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import click

from penstock import Penstock, WorkerInfo
from penstock.cli.base import Command, CommandError, confirm, run, yes_option
from penstock.cli.output import (
    DIM,
    Cell,
    Column,
    Styled,
    bar,
    count,
    echo,
    echo_json,
    format_bytes,
    format_duration,
    is_terminal,
    json_option,
    print_table,
)
from penstock.cli.target import Target, target_options
from penstock.model.activity import WorkerRequest
from penstock.ops.overview import read_overview

__all__ = ["COLUMNS", "SUBCOMMANDS", "id_cell", "load_cell", "load_of", "worker_row"]

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
    no units. A worker that is `quiet` claims no more jobs.
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
    """Return the id of a worker, marked if another one has it too, or if it claims no more jobs."""
    if worker.duplicate:
        return Styled(f"{worker.id} (id used twice)", "bold red")
    return Styled(f"{worker.id} (quiet)", "yellow") if worker.quiet else Styled(worker.id, "bold")


def request_options(function: Callable[..., None]) -> Any:
    """Add the arguments that `quiet` and `stop` share."""
    decorated: Any = target_options(changes=True)(function)
    decorated = json_option(decorated)
    decorated = click.option("--all", "every", is_flag=True, help="Ask all live workers.")(decorated)
    return click.argument("workers", metavar="[ID...]", nargs=-1)(decorated)


@click.command(
    "quiet",
    cls=Command,
    examples="""
        penstock worker quiet w1
        penstock worker quiet --all     # before a deployment: running jobs end, no new ones begin
    """,
)
@request_options
def quiet(target: Target, workers: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Ask workers to claim no more jobs: their runs go on to their ends, and then they idle.

    That cannot be taken back: a worker that is started anew claims jobs again. One with runs gets the request at once,
    an idle one within 10 seconds; `penstock worker ls` shows it. The exit code is 1 if there is no such worker.
    """
    ask(target, "quiet", workers, every=every, yes=True, as_json=as_json)


@click.command(
    "stop",
    cls=Command,
    examples="""
        penstock worker stop w1
        penstock worker stop --all --yes
    """,
)
@yes_option
@request_options
def stop(target: Target, workers: tuple[str, ...], every: bool, yes: bool, as_json: bool) -> None:
    """Ask workers to stop as after SIGTERM: they claim no more jobs, and end when their runs have ended.

    Runs that go on longer than the worker's --grace are interrupted, and their jobs queued again. What started the
    worker, such as systemd, may start it anew. The exit code is 1 if there is no such worker.
    """
    ask(target, "stop", workers, every=every, yes=yes, as_json=as_json)


def ask(target: Target, request: WorkerRequest, ids: tuple[str, ...], *, every: bool, yes: bool, as_json: bool) -> None:
    """Send a request to workers, and print what they will do."""
    if every == bool(ids):
        raise click.UsageError("give the ids of workers, or --all, not both")

    async def work() -> list[str]:
        async with target.opened() as app:
            live = {worker.id for worker in await app.workers()}
            wanted = sorted(live) if every else list(dict.fromkeys(ids))
            if not wanted:
                raise CommandError("there are no workers here")
            if missing := [id for id in wanted if id not in live]:
                raise CommandError(describe_missing(missing, live))
            if request == "stop":
                confirm(f"Stop {count(len(wanted), 'worker')}: {', '.join(wanted)}?", yes)
            return await send(app, wanted, request)

    asked = run(work())
    if as_json:
        echo_json({"request": request, "workers": asked})
        return
    effect = "claims no more jobs" if request == "quiet" else "stops when its runs have ended"
    for id in asked:
        echo(f"{id}: {effect}")


async def send(app: Penstock, ids: list[str], request: WorkerRequest) -> list[str]:
    """Send a request to each worker; raises `CommandError` if one has ended meanwhile."""
    gone = [id for id in ids if not await app.ask_worker(id, request)]
    if gone:
        raise CommandError(f"ended meanwhile: {', '.join(gone)}; the others were asked")
    return ids


def describe_missing(missing: list[str], live: set[str]) -> str:
    """Return the error for workers that do not exist: the most similar id, or the live ones."""
    names = ", ".join(map(repr, missing))
    near = get_close_matches(missing[0], sorted(live), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`penstock worker ls` lists the live ones"
    return f"there is no live worker {names}; nothing was asked; {hint}"


#: The commands under `penstock worker`; any other first word is the name of an app.
SUBCOMMANDS: dict[str, click.Command] = {"ls": ls, "quiet": quiet, "stop": stop}
