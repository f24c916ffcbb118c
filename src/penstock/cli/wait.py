"""`penstock job wait`, and what `penstock call` shares with it: the result of a job, or why there is none."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Coroutine
from typing import Any

import click

from penstock import CallTimeout
from penstock.cli.base import Command, CommandError, run
from penstock.cli.completion import queue_argument
from penstock.cli.output import echo_json, escape_controls
from penstock.cli.target import Target, target_options
from penstock.cli.values import SpanType

__all__ = ["print_result", "run_until_result", "wait"]


@click.command(
    "wait",
    cls=Command,
    examples="""
        penstock job wait mail welcome-42
        penstock job wait mail welcome-42 --timeout 5m
    """,
)
@queue_argument
@click.argument("id")
@click.option("--timeout", type=SpanType(), help="How long to wait.  [default: until the job has ended]")
@target_options(serde=True)
def wait(target: Target, queue: str, id: str, timeout: float | None) -> None:
    """Wait for a job and print its result as JSON, as `penstock call` does.

    The exit code is 1 if the job fails, is cancelled, does not exist, or does not end within --timeout.
    """

    async def work() -> Any:
        async with target.opened() as app:
            return await app.queue(queue).wait(id, timeout)

    print_result(run_until_result(work(), queue, timeout))


def run_until_result(work: Coroutine[Any, Any, Any], queue: str, timeout: float | None) -> Any:
    """Return the result of a job; a timeout is a `CommandError` that names the commands to go on with."""
    try:
        return run(work)
    except CallTimeout as error:
        names = shlex.join([queue, error.id])
        raise CommandError(
            f"job {error.id!r} in queue {queue!r} has not ended within {timeout:g} s and goes on; "
            f"`penstock job wait {names}` waits for it again, `penstock job cancel {names}` cancels it"
        ) from None


def print_result(result: Any) -> None:
    """Print the result of a job: JSON, or the bytes of a raw one, which are escaped on a terminal."""
    if isinstance(result, bytes) and sys.stdout.isatty():
        click.echo(escape_controls(result.decode("utf-8", "backslashreplace"), lines=True))
    elif isinstance(result, bytes):
        click.echo(result, nl=False)
    else:
        echo_json(result)
