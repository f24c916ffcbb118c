"""The checker: finds the broken promises of a history, each with the smallest part of the history that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.excerpt import format_violation, records_of_violation, runs_over_capacity
from chaos.history import History
from chaos.history_checks import HISTORY_CHECKS
from chaos.job_checks import JOB_CHECKS
from chaos.limit_checks import LIMIT_CHECKS
from chaos.log import Record
from chaos.schedule_checks import SCHEDULE_CHECKS
from chaos.violation import Violation

__all__ = ["check", "check_history", "explain", "smallest"]

#: Records whose absence would cause or hide a violation: they are never removed.
REQUIRED = ("settings", "put", "put_answer", "call_answer", "final", "leftovers", "loss_window", "clock")
#: A history with more records than this is not minimized further, because every try checks all of it again.
MAX_MINIMIZED = 400


def check(records: Iterable[Record]) -> list[Violation]:
    """Return all violations in the records of a run."""
    return check_history(History(records))


def check_history(history: History) -> list[Violation]:
    """Return all violations in a history."""
    found = [each for run_check in (*HISTORY_CHECKS, *LIMIT_CHECKS, *SCHEDULE_CHECKS) for each in run_check(history)]
    for job in history.jobs.values():
        for run_check in JOB_CHECKS:
            found += run_check(history, job)
    return found


def smallest(violation: Violation, records: Sequence[Record]) -> list[Record]:
    """Return the fewest records that show a violation: those of its jobs, without those it is found without."""
    if violation.kind == "over_capacity":
        kept = runs_over_capacity(records, int(violation.subject[0]))
    else:
        kept = records_of_violation(records, violation)
    if len(kept) > MAX_MINIMIZED:
        return kept
    for record in list(reversed(kept)):
        if record["k"] not in REQUIRED:
            fewer = [each for each in kept if each is not record]
            if _still_found(violation, fewer):
                kept = fewer
    return kept


def _still_found(violation: Violation, records: Sequence[Record]) -> bool:
    wanted = (violation.kind, violation.subject, violation.text)
    return any((each.kind, each.subject, each.text) == wanted for each in check(records))


def explain(violation: Violation, records: Sequence[Record]) -> str:
    """Return a violation as it is printed: the promise, the records that show it, the faults at that time."""
    return format_violation(violation, smallest(violation, records), records)
