"""Reads a history and says which promises were broken, each with the smallest part of it that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.checks import JOB_CHECKS
from chaos.history import History
from chaos.lines import CHECKS
from chaos.log import Record
from chaos.trim import crowd, shown, trimmed
from chaos.violation import Violation

__all__ = ["check", "explain", "smallest"]

#: Records whose absence alone could be taken for a violation, or for an excuse: they are never left out.
EVIDENCE = ("run", "put", "answer", "called", "final", "left", "shaky")
#: A history with more records than this is not made smaller: every try reads it all.
TOO_MANY = 400


def check(records: Iterable[Record]) -> list[Violation]:
    """Everything that is wrong with a history."""
    return violations(History(records))


def violations(history: History) -> list[Violation]:
    """As `check`, for a history that was read already."""
    found = [each for look in CHECKS for each in look(history)]
    for job in history.jobs.values():
        for look in JOB_CHECKS:
            found += look(history, job)
    return found


def smallest(violation: Violation, records: Sequence[Record]) -> list[Record]:
    """The fewest records that show a violation: those of its jobs, less whatever can be left out."""
    if violation.kind == "crowded":
        kept = crowd(records, int(violation.subject[0]))
    else:
        kept = trimmed(records, violation)
    if len(kept) > TOO_MANY:
        return kept
    for record in list(reversed(kept)):
        if record["k"] not in EVIDENCE:
            fewer = [each for each in kept if each is not record]
            if _same(violation, fewer):
                kept = fewer
    return kept


def _same(violation: Violation, records: Sequence[Record]) -> bool:
    wanted = (violation.kind, violation.subject, violation.text)
    return any((each.kind, each.subject, each.text) == wanted for each in check(records))


def explain(violation: Violation, records: Sequence[Record]) -> str:
    """A violation as it is printed: the promise, what happened, the records, the faults at that time."""
    return shown(violation, smallest(violation, records), records)
