"""The histories of a job in plain Python: every storage must agree with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.history import (
    MAX_ATTEMPTS,
    MAX_LINES,
    MAX_LOG,
    MAX_PARTS,
    MAX_STREAM,
    AttemptOutcome,
    HistoryEntry,
    HistoryName,
    HistoryPage,
    Report,
    attempt_data,
    line_data,
)
from penstock.storage.base import Cancel, Complete, Fail, Release, Resolution, Retried, Suspend


@dataclass
class Histories:
    """The failed attempts of a job, its log and its stream, with the numbers of entries there ever were."""

    attempts: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    log: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    #: The run whose lines came last, and the number of its last line.
    mark: tuple[str, int] = ("", 0)
    stream: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    #: The run whose parts came last, the number of its last part, and the number of the last part before the run.
    part_mark: tuple[str, int, int] = ("", 0, 0)

    def add_attempt(
        self, now: int, attempt: int, outcome: AttemptOutcome, begun: int, worker: str, error: bytes = b""
    ) -> None:
        n = self.attempts[-1].n + 1 if self.attempts else 1
        self.attempts.append(HistoryEntry(n, now, attempt, attempt_data(outcome, begun, worker, error)))
        if len(self.attempts) > MAX_ATTEMPTS:
            del self.attempts[1]

    def add_lines(self, now: int, attempt: int, report: Report) -> None:
        for number, line in enumerate(report.lines, report.first):
            if self.mark[0] == report.token and number <= self.mark[1]:
                continue
            n = self.log[-1].n + 1 if self.log else 1
            self.log.append(HistoryEntry(n, now - line.age, attempt, line_data(line)))
            self.mark = (report.token, number)
        while len(self.log) > MAX_LINES or sum(len(entry.data) for entry in self.log) > MAX_LOG:
            del self.log[0]

    def add_parts(self, now: int, attempt: int, report: Report) -> None:
        for number, data in enumerate(report.parts, report.first_part):
            token, last, base = self.part_mark
            if token != report.token:
                last, base = 0, last + base
            if number <= last:
                continue
            self.stream.append(HistoryEntry(base + number, now, attempt, data))
            self.part_mark = (report.token, number, base)
        while self.stream and (
            self.stream[0].n <= self.stream[-1].n - MAX_PARTS
            or sum(len(entry.data) for entry in self.stream) > MAX_STREAM
        ):
            del self.stream[0]

    def page(self, history: HistoryName, after: int, limit: int) -> HistoryPage:
        entries = {"attempts": self.attempts, "log": self.log, "stream": self.stream}[history]
        rest = [entry for entry in entries if entry.n > after]
        return HistoryPage(rest[:limit], len(rest) > limit)


def outcome_of(resolution: Resolution, cancelled: bool) -> tuple[AttemptOutcome, bytes] | None:
    """Return how a settled run ended, and its error; None if it adds no entry: it completed, or did not run."""
    if isinstance(resolution, Complete) or (isinstance(resolution, Fail | Cancel) and not resolution.ran):
        return None
    if cancelled or isinstance(resolution, Cancel):
        return "cancelled", b""
    if isinstance(resolution, Release | Suspend):
        return None
    if isinstance(resolution, Fail | Retried):
        outcome: AttemptOutcome = "failed" if isinstance(resolution, Fail) else "retrying"
        return outcome, resolution.brief or resolution.error
    return "stalled", b""
