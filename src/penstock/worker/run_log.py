"""The log of runs: one line for each when its outcome is recorded, and the reason if it failed.

The logger is `penstock.worker.run_log`: INFO for runs that ended as they should, WARNING for failures that
are followed by another run, ERROR for jobs that have failed for good. An error of a child process is
known by its record alone, so the traceback is a part of the message and not `exc_info`. The logger
`penstock.worker.run_log.tracebacks` decides which lines have one: at ERROR those of jobs that failed for good,
at DEBUG those of every failed run.
"""

from __future__ import annotations

import logging

from penstock.errors import ErrorKind, JobError
from penstock.model.job import Claim, State
from penstock.model.options import HandlerOptions
from penstock.model.outcome import Fail, Raised, Resolution, Retried, Stall, Stalled, attempts_after
from penstock.model.printing import count, format_moment, format_span, indent, job_name, one_line, place_of
from penstock.storage.base import Settled
from penstock.worker.run import RunJob

__all__ = ["log_lost", "log_run", "outcome_word"]

log = logging.getLogger("penstock.worker.run_log")
tracebacks = logging.getLogger("penstock.worker.run_log.tracebacks")

#: The names of the resolutions in log lines.
OUTCOME_WORDS = {
    "complete": "completed", "retried": "retrying", "fail": "failed", "release": "released", "stall": "stalled",
    "cancel": "cancelled", "suspend": "suspended",
}  # fmt: skip


def log_run(job: RunJob, answer: Settled) -> None:
    """Log the one line of a run, at a level by its outcome."""
    claim, run, resolution = job.claim, job.run, job.settlement.resolution
    attempt = attempts_after(claim, resolution)
    error = job.outcome.error if isinstance(job.outcome, Raised) else None
    word = outcome_word(job, answer)
    ms = run.took * 1000 if run is not None and run.began else None
    # A lost claim of a run that did not begin here is that of a dead child: it had recorded the outcome itself.
    level = logging.DEBUG if word == "lost" and ms is None else level_of(word, error)
    if not log.isEnabledFor(level):
        return
    if word == "lost":
        text = f"attempt {claim.attempts} lost its lease: its outcome is not recorded, and the job may run elsewhere"
    elif word == "failed" and error is not None:
        text = f"failed for good after {count(attempt, 'run')}: {describe_error(error)}"
    elif isinstance(resolution, Retried) and word == "retrying" and error is not None:
        text = f"attempt {numbered(claim, job.rules, resolution)} {describe_retry(error, resolution)}"
    elif isinstance(job.outcome, Stalled) and word == "stalled":
        text = f"attempt {claim.attempts}: its process died ({job.outcome.reason or 'unknown'}); it is queued again"
    else:
        text = f"attempt {attempt} {word}" + ("" if ms is None else f", took {format_span(ms)}")
    details = traceback_of(error, resolution) if error is not None and not answer.lost else ""
    fields = {
        "queue": claim.queue, "job_id": claim.id, "attempt": attempt, "ms": ms or 0.0, "outcome": word,
        "error_type": None if error is None else error.type,
    }  # fmt: skip
    log.log(level, "%s: %s%s", job_name(claim.queue, claim.id), text, details, extra=fields)


def outcome_word(job: RunJob, answer: Settled) -> str:
    """Return the outcome of a run in one word: that which was recorded, or "lost"."""
    how = type(job.settlement.resolution).__name__.lower() if answer.state is not State.CANCELLED else "cancel"
    return "lost" if answer.lost else OUTCOME_WORDS[how]


def log_lost(claim: Claim) -> None:
    """Log that the lease of a run was lost while it was under way."""
    fields = {"queue": claim.queue, "job_id": claim.id, "attempt": claim.attempts, "ms": 0.0, "outcome": "lost"}
    text = "%s: attempt %d lost its lease: it is ended, and the job may run elsewhere"
    log.warning(text, job_name(claim.queue, claim.id), claim.attempts, extra=fields)


def level_of(word: str, error: JobError | None) -> int:
    """Return the level of a line; a handler that raised `Retry` has not failed."""
    if word == "failed":
        return logging.ERROR
    if word == "retrying" and error is not None and error.type == "Retry":
        return logging.INFO
    return logging.WARNING if word in ("retrying", "stalled", "lost") else logging.INFO


def numbered(claim: Claim, rules: HandlerOptions, resolution: Retried) -> str:
    """Return the number of a run, and of how many if all that follow fail alike: "2 of 11"."""
    if resolution.count == "retries" and rules.max_retries is not None:
        last = claim.attempts + rules.max_retries - claim.retries
    elif resolution.count == "timeouts" and rules.max_timeouts is not None:
        last = claim.attempts + rules.max_timeouts - claim.timeouts - 1
    else:
        last = rules.max_attempts
    if last is not None and rules.max_attempts is not None:
        last = min(last, rules.max_attempts)
    return f"{claim.attempts}" if last is None else f"{claim.attempts} of {last}"


def describe_retry(error: JobError, resolution: Retried) -> str:
    """Return why a run is repeated, and when."""
    if error.kind is ErrorKind.TIMEOUT:
        reason = describe_error(error).removeprefix("the run ")
    elif error.type == "Retry":
        reason = f"asked for a retry: {one_line(error.message)}"
    else:
        reason = f"raised {describe_error(error)}"
    when = f"in {format_span(resolution.delay)}" if resolution.at is None else f"at {format_moment(resolution.at)}"
    return f"{reason}; next try {when}"


def describe_error(error: JobError) -> str:
    """Return an error as one line: its type and message, and the place where it was raised."""
    if error.kind in (ErrorKind.TIMEOUT, ErrorKind.STALL):
        text = one_line(error.message)
    else:
        text = f"{one_line(error.type)}: {one_line(error.message)}" if error.message else one_line(error.type)
    place = place_of(error.traceback)
    return f"{text} ({place})" if place else text


def traceback_of(error: JobError, resolution: Resolution) -> str:
    """Return the traceback of an error for the lines below a log line, "" if that is to have none."""
    wanted = logging.ERROR if isinstance(resolution, Fail) else logging.DEBUG
    if not error.traceback or isinstance(resolution, Stall) or not tracebacks.isEnabledFor(wanted):
        return ""
    return indent(error.traceback.rstrip().splitlines())
