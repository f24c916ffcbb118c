"""`penstock enqueue` and `penstock call`: jobs from the command line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click
from msgspec import UNSET

from penstock import Enqueued, Entry, Penstock
from penstock.cli.base import EXIT_USAGE, Command, CommandError, run
from penstock.cli.completion import queue_argument
from penstock.cli.hints import unknown_queue
from penstock.cli.output import count, echo, echo_json, format_duration, json_option
from penstock.cli.target import Target, target_options
from penstock.cli.values import SpanType, format_local_time, format_value, parse_headers, parse_time, parse_value
from penstock.cli.wait import print_result, run_until_result

__all__ = ["call", "enqueue"]


def job_options(function: Callable[..., Any]) -> Any:
    """Add the options of a job; the command gets those that were given as one dict, `job`."""

    @functools.wraps(function)
    def wrapped(
        id: str | None, delay: float | None, at: str | None, priority: int | None, group: str | None,
        on_conflict: str | None, max_attempts: int | None, max_retries: int | None, result_ttl: float | None,
        expires: float | None, cost: int | None, window: float | None, debounce: float | None,
        max_wait: float | None, header: tuple[str, ...], **others: Any,
    ) -> Any:  # fmt: skip
        if delay is not None and at is not None:
            raise click.UsageError("give --at or --delay, not both")
        given = {
            "id": id, "delay": delay, "run_at": None if at is None else parse_time(at), "priority": priority,
            "group": group, "on_conflict": on_conflict, "max_attempts": max_attempts, "max_retries": max_retries,
            "result_ttl": result_ttl, "expires": expires, "headers": parse_headers(header), "cost": cost,
            "window": window, "debounce": debounce, "max_wait": max_wait,
        }  # fmt: skip
        return function(job={name: value for name, value in given.items() if value is not None}, **others)

    decorated: Any = wrapped
    conflicts = click.Choice(["reject", "update", "raise"])
    for option in reversed(
        [
            click.option("--id", help="The job's id.  [default: a new random one]"),
            click.option("--delay", type=SpanType(), help="Run the job after this time, e.g. 90, 5m, 1h30m or 2d."),
            click.option("--at", metavar="TIME", help="Run the job at this time, local if it has no offset."),
            click.option("--expires", type=SpanType(), help="Cancel the job unless it starts within this time."),
            click.option("--priority", type=int, help="Jobs with a higher number run first.  [default: 0]"),
            click.option("--group", help="Jobs of one group run one at a time, in order."),
            click.option("--on-conflict", type=conflicts, help="What to do if the id is taken.  [default: reject]"),
            click.option("--window", type=SpanType(), help="How long the id is taken, even if the job has completed."),
            click.option("--debounce", type=SpanType(), help="Run the job when its id was not enqueued for this time."),
            click.option(
                "--max-wait", type=SpanType(), help="With --debounce: run the job after this time at the latest."
            ),
            click.option("--cost", type=int, help="What a run takes from rates that count costs.  [default: 1]"),
            click.option("--max-attempts", type=int, help="How often the job may run, retries and stalls included."),
            click.option("--max-retries", type=int, help="How often the job is run again after a failure."),
            click.option("--result-ttl", type=SpanType(), help="How long the result is kept."),
            click.option("--header", metavar="NAME=VALUE", multiple=True, help="A header; may be given repeatedly."),
            click.option("--text", is_flag=True, help="Take the payload as plain text, not JSON."),
        ]
    ):
        decorated = option(decorated)
    return decorated


def read_payload(target: Target, typed: str | None, as_text: bool) -> Any:
    """Return the payload: the argument, or stdin if that is missing or "-"."""
    if typed is None and sys.stdin.isatty():
        raise click.UsageError("give a payload, or - to read it from stdin")
    given = sys.stdin.read() if typed in (None, "-") else typed
    return parse_value(given or "", as_text=as_text, raw=target.serde == "raw")


def read_lines(target: Target, as_text: bool) -> list[Any]:
    """Return a payload for each line of stdin that is not empty; an error names the number of its line."""
    values: list[Any] = []
    advice = "nothing was enqueued; use --text for plain text"
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                values.append(parse_value(line.rstrip("\n"), as_text=as_text, raw=target.serde == "raw", advice=advice))
            except CommandError as error:
                raise CommandError(f"line {number}: {error.message}", EXIT_USAGE) from None
    return values


@click.command(
    cls=Command,
    examples="""
        penstock enqueue thumbnails '{"name": "cat"}'
        penstock enqueue thumbnails '{"name": "cat"}' --id cat --delay 5m
        penstock enqueue thumbnails '{"name": "cat"}' --at 2030-01-31T09:00
        penstock enqueue add '{"a": 1, "b": 2}'        # a task: its arguments by name
        penstock enqueue mail --lines < payloads.jsonl  # a job for each line
    """,
)
@queue_argument
@click.argument("payload", required=False)
@click.option("--lines", is_flag=True, help="Read payloads from stdin, one per line; each is a job.")
@click.option("--timeout", "--run-timeout", type=SpanType(), help="How long a run may take.  [default: the handler's]")
@job_options
@json_option
@target_options(serde=True, needs_app=True, changes=True)
def enqueue(
    target: Target, queue: str, payload: str | None, lines: bool, timeout: float | None, text: bool,
    job: dict[str, Any], as_json: bool,
) -> None:  # fmt: skip
    """Add a job to a queue. The payload is JSON, as an argument or from stdin.

    If no worker serves the queue and it had no jobs before, a hint is printed on stderr: the name may be
    misspelled.
    """
    if lines and (payload is not None or "id" in job):
        raise click.UsageError("--lines reads payloads from stdin: give no payload and no --id with it")
    values = read_lines(target, text) if lines else [read_payload(target, payload, text)]
    limit = UNSET if timeout is None else timeout
    answers = run(put(target, queue, [Entry(value, timeout=limit, **job) for value in values]))
    if as_json:
        echo_json(answers if lines else answers[0])
    elif lines:
        due = describe_due(job) if answers and all(each.status == "scheduled" for each in answers) else ""
        echo(f"{queue}: {count(sum(map(bool, answers)), 'job')} enqueued{due and f', scheduled{due}'}")
    else:
        print_answer(queue, answers[0], describe_due(job))
    if not all(answers):
        raise click.exceptions.Exit(1)


async def put(target: Target, queue: str, entries: list[Entry]) -> list[Enqueued]:
    """Enqueue the entries and return the answers; a hint is printed if the queue was unknown before."""
    async with target.opened(create=True) as app:
        hint = await unknown_queue(app, queue)
        answers = await app.queue(queue).enqueue_many(entries)
    if hint is not None:
        echo(hint, err=True)
    return answers


def describe_due(job: dict[str, Any]) -> str:
    """Return the time of a scheduled job as the end of a sentence, empty without --at and --delay."""
    if "run_at" in job:
        return f" for {format_local_time(job['run_at'])}"
    delay = job.get("delay", job.get("debounce"))
    return "" if delay is None else f" to run in {format_duration(delay)}"


def print_answer(queue: str, answer: Enqueued, due: str) -> None:
    """Print the answer to an enqueue as one line."""
    if answer.until is not None and answer.state == "completed":
        until = format_local_time(answer.until)
        echo(f"{queue}/{answer.id}: was completed before, and its id is taken until {until}; nothing was changed")
        return
    texts = {
        "scheduled": f"scheduled{due}",
        "duplicate": f"exists already and is {answer.state}; nothing was changed (see --on-conflict)",
        "completed": f"was completed before, with the result {format_value(answer.result)}",
        "blocked": "is running; the new job waits until that run has ended",
    }
    echo(f"{queue}/{answer.id}: {texts.get(answer.status, answer.status)}")


@click.command(
    cls=Command,
    examples="""
        penstock call add '{"a": 1, "b": 2}'
        penstock call add '{"a": 1, "b": 2}' --wait 5m
    """,
)
@queue_argument
@click.argument("payload", required=False)
@click.option("--wait", type=SpanType(), default="30s", show_default=True, help="How long to wait.")
@click.option("--run-timeout", type=SpanType(), help="How long a run may take.  [default: the handler's]")
@job_options
@target_options(serde=True, needs_app=True, changes=True)
def call(
    target: Target, queue: str, payload: str | None, wait: float, run_timeout: float | None, text: bool,
    job: dict[str, Any],
) -> None:  # fmt: skip
    """Add a job, wait for it and print its result as JSON.

    The exit code is 1 if the job fails, or does not end within --wait; then it goes on without the command,
    and `penstock job wait` waits for it again.
    """
    value = read_payload(target, payload, text)

    async def work() -> Any:
        async with target.opened(create=True) as app:
            await warn_without_worker(app, queue)
            limit = UNSET if run_timeout is None else run_timeout
            return await app.queue(queue).call(value, timeout=wait, run_timeout=limit, **job)

    print_result(run_until_result(work(), queue, wait))


async def warn_without_worker(app: Penstock, queue: str) -> None:
    """Warn on stderr if no worker serves the queue."""
    if (hint := await unknown_queue(app, queue)) is not None:
        echo(hint, err=True)
    elif not any(queue in worker.queues for worker in await app.workers()):
        echo(f"no worker serves {queue} yet; waiting", err=True)
