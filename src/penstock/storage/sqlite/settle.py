"""settle: running → completed / retrying / failed / cancelled / queued; fenced by the token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from penstock.model.job import NewJob, State
from penstock.storage.base import (
    Cancel,
    Complete,
    EventRecord,
    Fail,
    Release,
    Resolution,
    Retried,
    Settled,
    Settlement,
    Stall,
    Suspend,
)
from penstock.storage.sqlite.admin import pause_until
from penstock.storage.sqlite.fast_path import can_complete_plain, is_plain_completion
from penstock.storage.sqlite.finish import GONE_MS, finish, requeue
from penstock.storage.sqlite.flows import apply_effects
from penstock.storage.sqlite.histories import add_attempt
from penstock.storage.sqlite.ordering import promote, release_groups
from penstock.storage.sqlite.put import put
from penstock.storage.sqlite.rows import COMPLETED, RUNNING, STATES, Bucket, JobRow, expiry, state_of
from penstock.storage.sqlite.sql import Blob
from penstock.storage.sqlite.suspend import adopt, suspend
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["settle"]

#: The states that a resolution may have led to, if the same settlement arrives a second time.
POSSIBLE_STATES: dict[type, tuple[State, ...]] = {
    Complete: (State.COMPLETED,),
    Fail: (State.FAILED, State.CANCELLED),
}

#: The letter in the column `settled` for each resolution that sends a job back to its queue.
RETURN_CODES: dict[type, str] = {Retried: "r", Release: "f", Stall: "s", Suspend: "p"}

_LOST = Settled(None, lost=True)
_COMPLETED = Settled(State.COMPLETED)

Key = tuple[str, str]
#: A row of `settle_known`: id, twin, n, place, token, worker, grp, attempts.
Row = tuple[Any, ...]


def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Settle in order; neighbours that are plain completions are written together."""
    if not tx.fast:
        return [_settle(tx, s) for s in settlements]
    answers: list[Settled] = []
    for plain, neighbours in groupby(settlements, is_plain_completion):
        some = list(neighbours)
        answers += _complete_all(tx, some) if plain else _settle_all(tx, some)
    return answers


def _complete_all(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Complete runs whose result is kept and that put no follow-up jobs.

    Queues are independent, so each is written in one statement.
    """
    queues: dict[str, list[Settlement]] = {}
    for s in settlements:
        queues.setdefault(s.queue, []).append(s)
    answers = {
        name: iter([_COMPLETED] * len(some) if _complete_plain(tx, name, some) else _settle_all(tx, some))
        for name, some in queues.items()
    }
    return [next(answers[s.queue]) for s in settlements]


def _complete_plain(tx: Transaction, name: str, settlements: Sequence[Settlement]) -> bool:
    """Complete plain runs of one queue in one statement that reads nothing first; False if one is not plain.

    The fast path of `_settle_all`, and like it proven by the walks of `tests/conformance/test_model.py`
    and `tests/storage/test_sqlite_batches.py`. If a token is stale or a job had failed before, the
    statement misses its row: then the rows it has completed are set back and False is returned.
    A SAVEPOINT instead would cost a statement in every call, and a count of the rows within the statement
    up to 40 % more time; this costs a statement only in the rare call that needs it.
    """
    queue = tx.queue(name)
    if queue is None or not can_complete_plain(queue):
        return False
    ttls: set[int | None] = set()
    flat: list[object] = []
    for s in settlements:
        assert type(s.resolution) is Complete
        ttls.add(s.resolution.ttl)
        flat += (s.id, s.token, Blob(s.resolution.result))
    if len(ttls) > 1:
        return False
    expires = expiry(ttls.pop(), tx.now)
    completed = tx.run_with_numbered("settle_plain", (expires, tx.now), queue.finished + 1, 3, flat, queue.k)
    if completed < len(settlements):
        if completed:
            tx.run("settle_undo", queue.k, expires, queue.finished)
        return False
    if tx.wants("completed", name):
        _emit_completed(tx, queue, settlements, expires)
    queue.finished += completed
    queue.count(RUNNING, -completed)
    queue.count(COMPLETED, completed)
    if queue.awaited:
        tx.finished_jobs += [(name, s.id) for s in settlements]
    return True


def _emit_completed(tx: Transaction, queue: QueueRow, settlements: Sequence[Settlement], expires: int) -> None:
    """Emit the events of runs that `settle_plain` has just completed, as `_Completions` does."""
    found = {id: row for id, *row in tx.all("settle_completed", queue.k, expires, queue.finished)}
    events: list[EventRecord] = []
    for s in settlements:
        assert type(s.resolution) is Complete
        attempts, worker = found.get(s.id, (0, None))
        count = attempts if type(attempts) is int else 0
        events.append(EventRecord("completed", queue.name, s.id, tx.now, count, worker, s.resolution.result))
    tx.emit_all(events)


def _settle_all(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Settle in order: completions are collected and written together, the others one by one.

    The fast path of `_settle` for each, proven by the same tests as `_complete_plain`.
    """
    running = _find_running(tx, settlements)
    completions = _Completions(tx)
    answers: list[Settled] = []
    for s in settlements:
        resolution = s.resolution
        row = running.pop((s.queue, s.id), None)
        complete = row is not None and row[4] == s.token and (resolution if isinstance(resolution, Complete) else None)
        if row and complete and not complete.then and (complete.ttl != 0 or not tx.has_waiter(s.queue, s.id)):
            completions.add(s, complete, row)
            answers.append(_COMPLETED)
            continue
        completions.write()
        answers.append(_settle(tx, s))
        for new in getattr(resolution, "then", ()):
            running.pop((new.queue, new.id), None)  # it may have a successor now
    completions.write()
    return answers


def _find_running(tx: Transaction, settlements: Sequence[Settlement]) -> dict[Key, Row]:
    """Return the rows of running jobs that are to be completed, without those that have a successor."""
    ids_by_queue: dict[str, list[str]] = {}
    for s in settlements:
        if type(s.resolution) is Complete and not s.resolution.then:
            ids_by_queue.setdefault(s.queue, []).append(s.id)
    running: dict[Key, Row] = {}
    for name, ids in ids_by_queue.items():
        queue = tx.queue(name)
        rows = tx.run_with_list("settle_known", (queue.k,), ids) if queue and not queue.flows else []
        running.update(((name, row[0]), row) for row in rows if row[3] == RUNNING)
        for row in rows:
            if row[1]:
                running.pop((name, row[0]), None)
    return running


class _Completions:
    """Completions of one queue that are collected and then written in a few statements."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.queue: QueueRow | None = None
        self.kept: list[tuple[object, ...]] = []
        self.dropped: list[int] = []
        self.gone: list[tuple[object, ...]] = []
        self.groups: list[str] = []

    def add(self, s: Settlement, resolution: Complete, row: Row) -> None:
        """Collect one completion; those of another queue are written first."""
        tx = self.tx
        queue = self.queue
        if queue is None or queue.name != s.queue:
            self.write()
            queue = self.queue = tx.ensure_queue(s.queue)
        _, _, n, _, _, worker, group, attempts = row
        if group is not None and not queue.promoted:
            promote(tx, queue)
        queue.finished += 1
        queue.dirty = True
        if resolution.ttl == 0:
            self.dropped.append(n)
            if s.token:
                self.gone.append((queue.k, s.id, s.token, Bucket.COMPLETED, tx.now + GONE_MS))
        else:
            self.kept.append((expiry(resolution.ttl, tx.now), queue.finished, tx.now, Blob(resolution.result), n))
        tx.finished_jobs.append((s.queue, s.id))
        if tx.wants("completed", queue.name):
            tx.emit("completed", queue, s.id, attempts if type(attempts) is int else 0, worker, resolution.result)
        if group is not None:
            self.groups.append(group)

    def write(self) -> None:
        """Write the collected completions."""
        if self.queue is not None:
            self.queue.count(RUNNING, -len(self.kept) - len(self.dropped))
            self.queue.count(COMPLETED, len(self.kept))
        if self.kept:
            self.tx.run_with_rows("settle_complete", self.kept)
            self.kept.clear()
        if self.dropped:
            self.tx.run_with_list("settle_drop", (), self.dropped)
            self.dropped.clear()
        if self.gone:
            self.tx.run_with_rows("settle_gone", self.gone)
            self.gone.clear()
        if self.queue is not None and self.groups:  # last: a damaged count of holds is counted again
            release_groups(self.tx, self.queue, self.groups)
            self.groups.clear()


def _settle(tx: Transaction, s: Settlement) -> Settled:
    """Settle one run, the general path, and apply the effects of its end."""
    answer = _settle_one(tx, s)
    if tx.effects:
        apply_effects(tx)
    return answer


def _settle_one(tx: Transaction, s: Settlement) -> Settled:
    queue = tx.queue(s.queue)
    if queue is None:
        return _LOST
    job = tx.job(queue, s.id)
    if job is None or job.place != RUNNING or job.token != s.token:
        return _answer_repeat(tx, queue, job, s)
    if job.grp is not None or (queue.has_blocked and tx.job(queue, s.id, twin=1) is not None):
        promote(tx, queue)
    if isinstance(s.resolution, Fail | Cancel) and not s.resolution.ran:
        job.attempts -= 1  # the claim called no handler
    _record(tx, queue, job, s.resolution)
    if job.cancel is not None and not isinstance(s.resolution, Complete):
        finish(tx, queue, job, Bucket.CANCELLED, s.token, job.cancel_ttl)
        return Settled(State.CANCELLED)
    match s.resolution:
        case Complete(result, ttl, then):
            if then and queue.flows:
                then = adopt(tx, queue, job, then)
            finish(tx, queue, job, Bucket.COMPLETED, s.token, ttl, result=result)
            _put_first(tx, then)
            return _COMPLETED
        case Fail(error, ttl, count, then):
            if count:
                job.timeouts += 1
                queue.count_total("timed_out")
                tx.emit("timed_out", queue, job.id, job.attempts, job.worker)
            for number in s.resolution.culprits:
                tx.run("dependency_culprit", 1, job.n, number)
            finish(tx, queue, job, Bucket.FAILED, s.token, ttl, error=error)
            _put_first(tx, then)
            return Settled(State.FAILED)
        case Cancel(ttl):
            finish(tx, queue, job, Bucket.CANCELLED, s.token, ttl)
            return Settled(State.CANCELLED)
        case Suspend():
            job.settled = RETURN_CODES[Suspend] + s.token
            return Settled(suspend(tx, queue, job, s.resolution))
        case Release() | Stall() | Retried():
            return _send_back(tx, queue, job, s.resolution, s.token)


def _put_first(tx: Transaction, jobs: Sequence[NewJob]) -> None:
    """Put the jobs of a settlement before the effects of the end are applied: a plan must know its children."""
    held, tx.effects = tx.effects, []
    put(tx, jobs)
    tx.effects = held


def _record(tx: Transaction, queue: QueueRow, job: JobRow, resolution: Resolution) -> None:
    """Add a run that neither completed nor was released to the attempts of its job."""
    if (
        job.damaged
        or isinstance(resolution, Complete)
        or (isinstance(resolution, Fail | Cancel) and not resolution.ran)
    ):
        return
    if job.cancel is not None or isinstance(resolution, Cancel):
        add_attempt(tx, queue, job, "cancelled")
    elif isinstance(resolution, Fail | Retried):
        outcome = "failed" if isinstance(resolution, Fail) else "retrying"
        add_attempt(tx, queue, job, outcome, resolution.brief or resolution.error)
    elif isinstance(resolution, Stall):
        add_attempt(tx, queue, job, "stalled")


def _send_back(
    tx: Transaction, queue: QueueRow, job: JobRow, resolution: Release | Stall | Retried, token: str
) -> Settled:
    """Send a run back: running → waiting, at the job's old position or after a backoff."""
    event, due = "retrying", tx.now
    match resolution:
        case Release():
            job.attempts -= 1
            event = "released"
        case Stall():
            job.stalls, job.solo = job.stalls + 1, 1
            event = "stalled"
            queue.count_total("stalled")
        case Retried():
            due = _retry(tx, queue, job, resolution)
    job.settled = RETURN_CODES[type(resolution)] + token
    return Settled(state_of(requeue(tx, queue, job, event, due), tx.now))


def _retry(tx: Transaction, queue: QueueRow, job: JobRow, retried: Retried) -> int:
    """Count a failed run and return when the next one is due."""
    queue.count_total("retried")
    if retried.count == "timeouts":
        job.timeouts += 1
        queue.count_total("timed_out")
        tx.emit("timed_out", queue, job.id, job.attempts, job.worker)
    elif retried.count == "retries":
        job.retries += 1
    due = tx.now + retried.delay if retried.at is None else retried.at
    if retried.position == "due" and job.grp is None:
        job.time, job.seq = max(due, tx.now), queue.next_seq()
    job.error = retried.error or None
    job.solo = int(retried.solo)
    if retried.pause is not None:
        pause_until(tx, queue, job.grp if retried.pause == "group" else None, due)
    return due


def _answer_repeat(tx: Transaction, queue: QueueRow, job: JobRow | None, s: Settlement) -> Settled:
    """Answer a settlement whose claim is over: as the first time if it is a repetition, or else as lost."""
    state: State | None = None
    gone = tx.one("settle_before", queue.k, s.id, s.token, tx.now)
    if gone:
        state = STATES.get(gone[0])
    elif job and job.ended and job.token == s.token and not job.expired(tx.now):
        state = STATES[job.place]
    if state in POSSIBLE_STATES.get(type(s.resolution), (State.CANCELLED,)):
        return Settled(state)
    code = RETURN_CODES.get(type(s.resolution))
    if job and job.waiting and code is not None and job.settled == code + s.token:
        return Settled(state_of(job, tx.now))
    return _LOST
