"""Totals, error groups and groups of the model: what the storages count beside the jobs themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import JobError
from penstock.model.fingerprint import key_of, shorten
from penstock.model.job import Snapshot, State
from penstock.model.pause import Pause
from penstock.model.stats import Sample, Totals
from penstock.storage.base import Page
from penstock.storage.observing import (
    MAX_ERROR_GROUPS,
    MAX_GROUP_WAITING,
    STATS_MS,
    ErrorGroup,
    ErrorGroupPage,
    QueueGroup,
    QueueGroupPage,
    QueueStats,
    page_of_groups,
)

if TYPE_CHECKING:
    from tests.model import Job, Queue


@dataclass
class Group:
    """The failures with one key."""

    first: int
    last: int
    count: int
    error: JobError
    sample: str


class ModelStats:
    """The part of the model that counts. Totals are never forgotten here: a storage may begin anew with a queue."""

    now: int
    all: dict[str, Queue]

    if TYPE_CHECKING:

        def counts(self, name: str) -> dict[State, int]: ...
        def paused(self, name: str, group: str | None = None) -> Pause | None: ...
        def _expire(self, name: str) -> None: ...
        def _promote(self, queue: Queue) -> None: ...
        def _newer(self, job: Job) -> bool: ...
        def _order(self, queue: Queue) -> list[tuple[str, str]]: ...
        def _jobs_of_group(self, queue: Queue, group: str) -> list[Job]: ...
        def _snapshot(self, name: str, job: Job | None, blocked: bool = False) -> Snapshot | None: ...

    def __init__(self) -> None:
        self.totals: dict[str, dict[str, int]] = {}
        self.failures: dict[str, dict[str, Group]] = {}

    def count(self, name: str, transition: str) -> None:
        """Count a transition of a queue's job."""
        counted = self.totals.setdefault(name, {})
        counted[transition] = counted.get(transition, 0) + 1

    def note_error(self, name: str, id: str, error: bytes | None) -> None:
        """Count a failure in its group."""
        key = key_of(error)
        if key is None or error is None:
            return
        groups = self.failures.setdefault(name, {})
        group = groups.get(key)
        if group is None or group.last <= self.now - STATS_MS:
            group = groups[key] = Group(self.now, self.now, 0, JobError.decode(error), id)
        group.last, group.count, group.sample = self.now, group.count + 1, id
        if len(groups) > MAX_ERROR_GROUPS:
            del groups[min(groups, key=lambda each: (groups[each].last, each))]

    def error_groups(self, name: str, after: str | None = None, limit: int = 100) -> ErrorGroupPage:
        groups = [
            ErrorGroup(
                key=key,
                type=shorten(group.error.type),
                message=shorten(group.error.message),
                kind=group.error.kind,
                first=group.first,
                last=group.last,
                count=group.count,
                open=len(self._failed(name, key)),
                sample=group.sample,
            )
            for key, group in self.failures.get(name, {}).items()
        ]
        return page_of_groups(groups, self.now, after, limit)

    def _failed(self, name: str, key: str) -> list[Job]:
        queue = self.all.get(name)
        jobs = list(queue.jobs.values()) if queue else []
        failed = [j for j in jobs if j.finish and j.finish.state is State.FAILED and key_of(j.finish.error) == key]
        return sorted(failed, key=lambda j: -j.finish.number if j.finish else 0)

    def group_jobs(self, name: str, key: str, after: str | None = None, limit: int = 100) -> Page:
        found = [self._snapshot(name, job) for job in self._failed(name, key)]
        return Page([snapshot for snapshot in found if snapshot])

    def stats(self, names: Sequence[str]) -> list[QueueStats]:
        return [QueueStats(name, self._sample(name), self.paused(name)) for name in names]

    def _sample(self, name: str) -> Sample:
        counts, queue = self.counts(name), self.all.get(name)
        oldest = None
        if queue:
            self._promote(queue)
            order = self._order(queue)
            if order:
                kind, which = order[0]
                job = queue.jobs[which] if kind == "job" else self._jobs_of_group(queue, which)[0]
                oldest = max(self.now - job.due, 0)
        return Sample(at=self.now, counts=counts, totals=Totals(**self.totals.get(name, {})), oldest=oldest)

    def groups(self, name: str, after: str | None = None, limit: int = 100, prefix: str = "") -> QueueGroupPage:
        """Return all groups on one page: those in the rotation by their turns, then the others by name."""
        queue = self.all.get(name)
        if queue is None:
            return QueueGroupPage([])
        self._expire(name)
        self._promote(queue)
        waiting = [j for j in queue.jobs.values() if j.waiting() and (j.entered or j.retried)]
        names = {j.group for j in waiting if j.group is not None and j.group.startswith(prefix)}
        found = [self._queue_group(queue, group) for group in sorted(names, key=str.encode)]
        if prefix:
            return QueueGroupPage(found)
        turns = sorted((group for group in found if group.rotates), key=lambda group: queue.turns[group.name])
        return QueueGroupPage(turns + [group for group in found if not group.rotates])

    def _queue_group(self, queue: Queue, group: str) -> QueueGroup:
        mine = [j for j in queue.jobs.values() if j.group == group]
        backoff = sorted((j for j in mine if j.waiting() and j.retried and not j.entered), key=lambda j: (j.due, j.seq))
        running, lane = [j for j in mine if j.run], self._jobs_of_group(queue, group)
        head = backoff[0] if backoff else None if running else lane[0]
        state = State.RETRYING if backoff else State.RUNNING if running else State.QUEUED
        return QueueGroup(
            name=group, head=None if head is None else head.id, state=state, due=None if head is None else head.due,
            waiting=min(len(lane), MAX_GROUP_WAITING), held=len(backoff) + len(running),
            rotates=group in queue.turns and not self._newer(lane[0]), pause=self.paused(queue.name, group),
        )  # fmt: skip
