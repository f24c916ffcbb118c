"""`penstock enqueue` and `penstock call`: jobs from the command line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from penstock import Enqueued, Entry, Penstock
from penstock.cli.base import EXIT_USAGE, Command, CommandError, run
from penstock.cli.completion import queue_argument
from penstock.cli.output import count, echo, echo_json, json_option
from penstock.cli.target import Target, target_options
from penstock.cli.values import SpanType, format_value, parse_headers, parse_value

__all__ = ["call", "enqueue"]


def job_options(function: Callable[..., Any]) -> Any:
    """Add the options of a job; the command gets those that were given as one dict, `job`."""

    @functools.wraps(function)
    def wrapped(
        id: str | None, delay: float | None, at: str | None, priority: int | None, group: str | None,
        on_conflict: str | None, max_attempts: int | None, max_retries: int | None, result_ttl: float | None,
        expires: float | None, header: tuple[str, ...], **others: Any,
    ) -> Any:  # fmt: skip
        given = {
            "id": id, "delay": delay, "run_at": None if at is None else parse_time(at), "priority": priority,
            "group": group, "on_conflict": on_conflict, "max_attempts": max_attempts, "max_retries": max_retries,
            "result_ttl": result_ttl, "expires": expires, "headers": parse_headers(header),
        }  # fmt: skip
        return function(job={name: value for name, value in given.items() if value is not None}, **others)

    decorated: Any = wrapped
    conflicts = click.Choice(["reject", "update", "raise"])
    for option in reversed(
        [
            click.option("--id", help="The job's id.  [default: a new random one]"),
            click.option("--delay", type=float, metavar="SECONDS", help="Run the job after this time."),
            click.option("--at", metavar="TIME", help="Run the job at this time, e.g. 2030-01-31T09:00+01:00."),
            click.option("--expires", type=SpanType(), help="Cancel the job unless it starts within this time."),
            click.option("--priority", type=int, help="Jobs with a higher number run first.  [default: 0]"),
            click.option("--group", help="Jobs of one group run one at a time, in order."),
            click.option("--on-conflict", type=conflicts, help="What to do if the id is taken.  [default: reject]"),
            click.option("--max-attempts", type=int, help="How often the job may run, retries and stalls included."),
            click.option("--max-retries", type=int, help="How often the job is run again after a failure."),
            click.option("--result-ttl", type=float, metavar="SECONDS", help="How long the result is kept."),
            click.option("--header", metavar="NAME=VALUE", multiple=True, help="A header; may be given repeatedly."),
            click.option("--text", is_flag=True, help="Take the payload as plain text, not JSON."),
        ]
    ):
        decorated = option(decorated)
    return decorated


def parse_time(text: str) -> datetime:
    """Parse the value of --at; a time without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--at is a time such as 2030-01-31T09:00+01:00, not {text!r}", EXIT_USAGE) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def read_payload(target: Target, typed: str | None, as_text: bool) -> Any:
    """Return the payload: the argument, or stdin if that is missing or "-"."""
    if typed is None and sys.stdin.isatty():
        raise click.UsageError("give a payload, or - to read it from stdin")
    given = sys.stdin.read() if typed in (None, "-") else typed
    return parse_value(given or "", as_text=as_text, raw=target.serde == "raw")


@click.command(
    cls=Command,
    examples="""
        penstock enqueue thumbnails '{"name": "cat"}'
        penstock enqueue thumbnails '{"name": "cat"}' --id cat --delay 60
        penstock enqueue add '{"a": 1, "b": 2}'        # a task: its arguments by name
        penstock enqueue mail --lines < payloads.jsonl  # a job for each line
    """,
)
@queue_argument
@click.argument("payload", required=False)
@click.option("--lines", is_flag=True, help="Read payloads from stdin, one per line; each is a job.")
@job_options
@json_option
@target_options(serde=True)
def enqueue(
    target: Target, queue: str, payload: str | None, lines: bool, text: bool, job: dict[str, Any], as_json: bool
) -> None:
    """Add a job to a queue. The payload is JSON, as an argument or from stdin."""
    if lines and (payload is not None or "id" in job):
        raise click.UsageError("--lines reads payloads from stdin: give no payload and no --id with it")
    if lines:
        raw = target.serde == "raw"
        values = [parse_value(line.rstrip("\n"), as_text=text, raw=raw) for line in sys.stdin if line.strip()]
    else:
        values = [read_payload(target, payload, text)]
    answers = run(put(target, queue, [Entry(value, **job) for value in values]))
    if as_json:
        echo_json(answers if lines else answers[0])
    elif lines:
        echo(f"{queue}: {count(sum(map(bool, answers)), 'job')} enqueued")
    else:
        print_answer(queue, answers[0])
    if not all(answers):
        raise click.exceptions.Exit(1)


async def put(target: Target, queue: str, entries: list[Entry]) -> list[Enqueued]:
    async with target.opened(create=True) as app:
        return await app.queue(queue).enqueue_many(entries)


def print_answer(queue: str, answer: Enqueued) -> None:
    """Print the answer to an enqueue as one line."""
    texts = {
        "duplicate": f"exists already and is {answer.state}; nothing was changed (see --on-conflict)",
        "completed": f"was completed before, with the result {format_value(answer.result)}",
        "blocked": "is running; the new job waits until that run has ended",
    }
    echo(f"{queue}/{answer.id}: {texts.get(answer.status, answer.status)}")


@click.command(
    cls=Command,
    examples="""
        penstock call add '{"a": 1, "b": 2}'
        penstock call add '{"a": 1, "b": 2}' --wait 5
    """,
)
@queue_argument
@click.argument("payload", required=False)
@click.option("--wait", type=float, default=30.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@job_options
@target_options(serde=True)
def call(target: Target, queue: str, payload: str | None, wait: float, text: bool, job: dict[str, Any]) -> None:
    """Add a job, wait for it and print its result as JSON.

    The exit code is 1 if the job fails, or does not end within --wait; then it goes on without the command.
    """
    value = read_payload(target, payload, text)

    async def work() -> Any:
        async with target.opened(create=True) as app:
            await warn_without_worker(app, queue)
            return await app.queue(queue).call(value, timeout=wait, **job)

    answer = run(work())
    if isinstance(answer, bytes):
        click.echo(answer, nl=False)
    else:
        echo_json(answer)


async def warn_without_worker(app: Penstock, queue: str) -> None:
    """Warn on stderr if no worker serves the queue."""
    if not any(queue in worker.queues for worker in await app.workers()):
        echo(f"no worker serves {queue} yet; waiting", err=True)
