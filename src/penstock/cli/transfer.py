"""`penstock export` and `penstock import`: copy jobs between storages as lines of JSON."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import IO, Any

import click

from penstock import Penstock, State
from penstock.cli.base import EXIT_USAGE, Command, CommandError, run
from penstock.cli.completion import queue_names
from penstock.cli.output import console, count, echo, echo_json, escape_controls, is_terminal, json_option
from penstock.cli.target import Target, describe_location, target_options
from penstock.model.printing import quote_name
from penstock.ops.export import ImportReport, LeftOut, count_jobs, export_jobs, import_jobs, read_lines
from penstock.ops.overview import read_overview

__all__ = ["export", "import_"]

#: Bytes that are read at once to count the lines of an input.
COUNTED_BYTES = 1 << 20


@contextlib.contextmanager
def progress(title: str, total: int | None) -> Generator[Callable[[int], None], None, None]:
    """Show a progress bar if stderr is a terminal; yields the function that sets the number done."""
    if not is_terminal(sys.stderr):
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(err=True), transient=True) as drawn:
        task = drawn.add_task(title, total=total)
        yield lambda done: drawn.update(task, completed=done)


@click.command(
    cls=Command,
    examples="""
        penstock export mail -o mail.jsonl
        penstock export -o everything.jsonl            # all queues
        penstock export mail --url sqlite:penstock.db | penstock import --url redis://localhost:6379
    """,
)
@click.argument("queues", metavar="[QUEUE...]", nargs=-1, shell_complete=queue_names)
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="The file to write.  [default: stdout]")
@target_options
def export(target: Target, queues: tuple[str, ...], output: str | None) -> None:
    """Write jobs as JSON lines: waiting ones with their counts, finished ones with their results.

    The storage is not changed. Running jobs, and those blocked behind them, are left out: for a full
    copy, pause the queue and let its runs end first. Attempts and logs of jobs, error groups, schedules, limits and
    the history of queues are not in an export.
    """
    if output is None and sys.stdout.isatty():
        raise click.UsageError("give --output FILE, or pipe the output: an export is not printed on a terminal")

    async def work() -> None:
        async with target.opened() as app:
            names = await select_queues(app, queues)
            total, left = await count_jobs(app, names)
            left_out = LeftOut()
            with open_output(output) as file, progress("exporting", total) as step:
                written = -1  # the first line is no job
                async for line in export_jobs(app, names, left_out):
                    file.write(escape_controls(line.decode(), json=True).encode() + b"\n")
                    written += 1
                    step(written)
            echo(
                f"exported {count(written, 'job')} of {count(len(names), 'queue')} from {describe_location(app)}",
                err=True,
            )
            if left.total():
                echo(
                    f"left out: {format_counts(left)}; pause the queue, let its runs end, and export again for those",
                    err=True,
                )
            if left_out.newer:
                newer = count(len(left_out.newer), "job")
                echo(f"left out: {newer} in a newer format; export them with the newer Penstock", err=True)
            if left_out.damaged:
                raise CommandError(
                    f"the storage is damaged, and was read only in part: {', '.join(left_out.damaged)}; "
                    "`penstock doctor` names the way to recover more"
                )
            for name in await find_served_queues(app, names):
                pause = f"penstock queue pause {shlex.quote(name)}"
                echo(f"workers serve {name!r}: for an exact copy, `{pause}` first", err=True)

    run(work())


def format_counts(states: Counter[State]) -> str:
    return " and ".join(f"{number:,} {state}" for state, number in states.items() if number)


async def find_served_queues(app: Penstock, names: list[str]) -> list[str]:
    """Return the queues that workers may have changed while they were read."""
    overview = await read_overview(app, names)
    return [queue.name for queue in overview.queues if queue.workers and queue.paused_since is None]


async def select_queues(app: Penstock, queues: tuple[str, ...]) -> list[str]:
    """Return the named queues, or all; a name without a queue is a `CommandError`."""
    known = await app.queues()
    for name in queues:
        if name not in known:
            names = ", ".join(map(quote_name, known)) or "none"
            raise CommandError(f"there is no queue {name!r} at {describe_location(app)}; there are: {names}")
    return list(queues) or known


@contextlib.contextmanager
def open_output(path: str | None) -> Generator[IO[bytes], None, None]:
    """Open the output. A file gets its name only when it is complete, and only its owner can read it.

    A link of that name is replaced, not followed.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if is_device(path):
        with open(path, "wb") as file:
            yield file
        return
    directory, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise CommandError(f"cannot write {path}: there is no directory {directory}; create it")
    # With O_EXCL and a random name: a file or a link that another user has put there is never opened.
    descriptor, partial = tempfile.mkstemp(prefix=f".{name[:100]}.", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            yield file
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def is_device(path: str) -> bool:
    """Return whether the output is a device, such as /dev/null; a pipe or a socket of another user is refused."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    if stat.S_ISREG(status.st_mode):
        return False
    if not stat.S_ISCHR(status.st_mode) and status.st_uid != os.geteuid():
        raise CommandError(f"{path} is a pipe or a socket of another user; choose another name", EXIT_USAGE)
    return True


@click.command(
    "import",
    cls=Command,
    examples="""
        penstock import mail.jsonl --url redis://localhost:6379
        penstock import mail.jsonl --queue mail-again
        penstock export --url sqlite:penstock.db | penstock import --url redis://localhost:6379
    """,
)
@click.argument("path", metavar="[FILE]", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--queue", help="Put every job into this queue instead of its own.")
@click.option(
    "--max-payload",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Refuse a job with a larger payload or result.  [default: that of the app, 1048576]",
)
@json_option
@target_options(changes=True)
def import_(target: Target, path: str | None, queue: str | None, max_payload: int | None, as_json: bool) -> None:
    """Read jobs from JSON lines, as `penstock export` writes them.

    A job whose id exists already is left as it is, so an interrupted import can simply be repeated. Each job is
    checked as `enqueue` checks it. At the first line that is refused the import stops; jobs of earlier lines may be
    stored. Signed and encrypted jobs belong to their namespace and queue: into another one the app that has their
    keys imports them.
    """
    if path is None and sys.stdin.isatty():
        raise click.UsageError("give a FILE, or pipe an export in")

    async def work() -> tuple[ImportReport, str]:
        report = ImportReport()
        async with target.opened(create=True) as app:
            most = max(app.max_payload, app.max_result) if max_payload is None else max_payload
            with open_input(path) as (file, total), progress("importing", total) as step:
                async for report in import_jobs(app, read_lines(file, most), queue, most):
                    step(count_processed(report))
            return report, describe_location(app)

    try:
        report, location = run(work())
    except ValueError as error:
        raise CommandError(f"{path if path not in (None, '-') else 'stdin'}: {error}", EXIT_USAGE) from error
    if as_json:
        echo_json(report_json(report))
    else:
        for line in report_lines(report, location):
            echo(line)


@contextlib.contextmanager
def open_input(path: str | None) -> Generator[tuple[IO[bytes], int | None], None, None]:
    """Open the input; yields it and the number of its jobs, which is None for a pipe."""
    if path in (None, "-"):
        yield sys.stdin.buffer, None
        return
    assert path is not None
    with open(path, "rb") as file:
        total = sum(block.count(b"\n") for block in iter(lambda: file.read(COUNTED_BYTES), b"")) - 1
        file.seek(0)
        yield file, total


def count_processed(report: ImportReport) -> int:
    return report.stored.total() + report.known + report.expired + report.refused


def report_json(report: ImportReport) -> dict[str, Any]:
    """Return the report as it is printed with --json."""
    stored = {str(state): number for state, number in report.stored.items()}
    return {"stored": stored, "known": report.known, "expired": report.expired, "refused": report.refused}


def report_lines(report: ImportReport, location: str) -> Iterator[str]:
    """Yield the report as lines of text."""
    states = ", ".join(f"{number:,} {state}" for state, number in report.stored.items())
    yield f"imported {count(report.stored.total(), 'job')} into {location}{f': {states}' if states else ''}"
    if report.known:
        yield f"left as they are: {count(report.known, 'job')} whose id exists already"
    if report.expired:
        yield f"left out: {count(report.expired, 'finished job')} whose result has expired"
    if report.refused:
        yield f"left out: {count(report.refused, 'finished job')}; this storage cannot import finished jobs"
