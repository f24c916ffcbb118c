"""Violations: the kinds of broken promises, and the result of a check that found one."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["KINDS", "Violation"]

#: Every kind of violation, and the promise that it breaks.
KINDS: dict[str, str] = {
    "lost": "an accepted job is in some state until its TTL has expired",
    "stuck": "when the faults are over, all jobs finish",
    "duplicated": "one terminal transition, one terminal event and one result for each job",
    "overlapped": "one live run for each id; one live run or batch for each group",
    "out_of_order": "a group's jobs run in the order of their acceptance, each after the previous ones are finished",
    "early": "no run before its time",
    "ran_while_paused": "no job of a paused queue is claimed",
    "stale": "the settle of a run whose job was claimed by another is refused",
    "failure_not_handled": "the fail handler is called once for each failed job",
    "unrequested": "only enqueued jobs exist; follow-up jobs exist if, and only if, their run's settle was recorded",
    "wrong_outcome": "a job finishes in the state that its handler's behaviour leads to",
    "ran_after_cancel": "a cancelled job does not run again",
    "over_capacity": "the runs of a process never need more units than its capacity",
    "over_limit": "never more live claims of a family, a queue or a group than its limit when they were claimed",
    "over_rate": "in a span of time no more is started than the rate of the family, the queue or the group allows",
    "slot_not_freed": "the slots of a dead process are free again within its lease and 5 seconds",
    "duplicated_tick": "at most one job for each tick of a schedule",
    "uncounted_tick": "each nominal time of a schedule is fired, skipped, missed or dropped, and counted once",
    "wrong_tick": "no tick fires before its time, while its schedule is paused, or after it was retired",
    "leaked": "when all jobs are finished and all TTLs have expired, the storage holds the same keys or rows as before",
    "wrong_refusal": "a server with a full memory refuses new jobs, and no other request",
    "wrong_exit": "a worker exits with 0 after SIGTERM, and no worker exits by itself",
}


@dataclass(slots=True)
class Violation:
    """Broken promise: its kind, the job, group or process concerned, and a sentence about it."""

    kind: str
    #: Queue and id, queue and group, or a process.
    subject: tuple[str, ...]
    text: str
    #: The jobs (queue, id) whose records show it.
    keys: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(self.subject)!r}: {self.text}"
