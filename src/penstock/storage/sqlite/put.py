"""put: nothing → queued / scheduled / blocked, or updated in place, or the existing state."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.job import MoveWhen, NewJob, State, Update
from penstock.storage.base import Put, PutStatus
from penstock.storage.sqlite.ordering import enter_and_save, promote
from penstock.storage.sqlite.rows import (
    BLOCKED,
    LANE,
    LATER,
    READY,
    RUNNING,
    Bucket,
    JobRow,
    flags_of,
    flags_to_bits,
    state_of,
)  # fmt: skip
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["QUEUED", "apply_update", "is_plain", "merge_flags", "moved_due", "put"]

QUEUED = Put(PutStatus.QUEUED, State.QUEUED)
_SCHEDULED = Put(PutStatus.SCHEDULED, State.SCHEDULED)

#: Whoever puts a job and waits for it comes to wait within this time (ms).
WAITER_MS = 60_000

Row = tuple[object, ...]
#: Groups that may come into the rotation, by their queue's name.
GroupTurns = dict[str, list[Row]]


def put(tx: Transaction, jobs: Sequence[NewJob]) -> list[Put]:
    """Accept jobs in order. New ones are gathered and inserted together; the others one by one."""
    if len(jobs) == 1 and _put_one(tx, jobs[0]):
        return [QUEUED]
    for name in {new.queue for new in jobs}:
        promote(tx, tx.ensure_queue(name))
    known = _taken_ids(tx, jobs)
    if not known and _put_plain(tx, jobs):
        return [QUEUED] * len(jobs)
    rows: list[Row] = []
    wakes: GroupTurns = {}
    answers: list[Put] = []
    for new in jobs:
        queue = tx.ensure_queue(new.queue)
        if not new.fresh or known:
            key = (new.queue, new.id)
            if key in known:
                _insert(tx, rows, wakes)
                answers.append(_put_existing(tx, queue, new))
                continue
            known.add(key)
        answers.append(_accept_new(tx, queue, new, rows, wakes))
    _insert(tx, rows, wakes)
    for new, answer in zip(jobs, answers, strict=True):
        if new.waiter is not None and answer.status is not PutStatus.COMPLETED:
            tx.run("wait_add", tx.namespace, new.queue, new.id, new.waiter, "", tx.wall + WAITER_MS)
            tx.mark_awaited(new.queue)
    return answers


def _taken_ids(tx: Transaction, jobs: Sequence[NewJob]) -> set[tuple[str, str]]:
    """The jobs among these whose ids are taken; an id that was just made up is not looked for."""
    asked: dict[str, list[str]] = {}
    for new in jobs:
        if not new.fresh:
            asked.setdefault(new.queue, []).append(new.id)
    known: set[tuple[str, str]] = set()
    for name, ids in asked.items():
        queue = tx.queue(name)
        if queue is not None:
            known.update((name, id) for (id,) in tx.run_with_list("put_known", (queue.k,), ids))
    return known


def _put_one(tx: Transaction, new: NewJob) -> bool:
    """What `_put_plain` does with many, for one job by itself whose id was just made up."""
    if not new.fresh or not is_plain(new):
        return False
    queue = tx.ensure_queue(new.queue)
    promote(tx, queue)
    now = tx.now
    if queue.time < now:
        queue.time = now
    queue.seq = seq = queue.seq + 1
    tx.run("put_one", queue.k, queue.time, now, tx.format, seq, new.id, new.payload, -new.priority)
    _grow(tx, queue, (new,))
    if not (queue.has_later or queue.idle or tx.has_listeners):
        tx.fast_put_queue = queue.name, queue.k
    return True


def _grow(tx: Transaction, queue: QueueRow, jobs: Sequence[NewJob]) -> None:
    """Jobs have come that may run."""
    queue.deltas[READY] += len(jobs)
    queue.ready_added = True
    tx.notify_work(queue, len(jobs))
    if tx.has_listeners:
        for new in jobs:
            tx.emit("enqueued", queue, new.id, 0)


def is_plain(new: NewJob) -> bool:
    """Whether a job may run at once, and has nothing of its own but a payload and a priority."""
    return (
        new.group is None and new.delay is None and new.run_at is None
        and not new.headers and not new.limits and new.waiter is None
    )  # fmt: skip


def _put_plain(tx: Transaction, jobs: Sequence[NewJob]) -> bool:
    """Insert jobs that differ in little, all at once, if these are such and none has its id from another."""
    name = jobs[0].queue if jobs else ""
    flat: list[object] = []
    made_up = True
    for new in jobs:
        if new.queue != name or not is_plain(new):
            return False
        made_up = made_up and new.fresh
        flat += (new.id, new.payload, -new.priority)
    if not jobs or not (made_up or len(jobs) == 1 or len({new.id for new in jobs}) == len(jobs)):
        return False
    queue = tx.ensure_queue(name)
    queue.time = max(queue.time, tx.now)
    tx.run_with_numbered("put_plain", (queue.k, queue.time, tx.now, tx.format), queue.seq + 1, 3, flat)
    queue.seq += len(jobs)
    _grow(tx, queue, jobs)
    return True


def _insert(tx: Transaction, rows: list[Row], wakes: GroupTurns) -> None:
    if rows:
        tx.run_with_rows("put_insert", rows)
        rows.clear()
    for name, groups in wakes.items():
        tx.notify_work(tx.ensure_queue(name), tx.run_with_rows("lane_wake", groups))
    wakes.clear()


def _accept_new(tx: Transaction, queue: QueueRow, new: NewJob, rows: list[Row], wakes: GroupTurns) -> Put:
    """A job that shares its id with none: its row, and its group's turn, go to be inserted."""
    if tx.has_listeners:
        tx.emit("enqueued", queue, new.id, 0)
    time, due = _stamps(tx, queue, new)
    seq = queue.next_seq()
    if due <= tx.now:
        place, answer = READY, QUEUED
        if new.group is None:
            tx.notify_work(queue)
        else:
            place = LANE
            wakes.setdefault(queue.name, []).append((queue.k, new.group, tx.now, seq))
    else:
        place, answer = LATER, _SCHEDULED
        tx.notify_due(queue, due)
    queue.deltas[place] += 1
    rows.append(
        (queue.k, new.id, 0, place, -new.priority, time, seq, due, tx.now, new.group, None,
         tx.format, new.headers, new.limits, new.payload)
    )  # fmt: skip
    return answer


def _requested_due(tx: Transaction, new: NewJob) -> int | None:
    return new.run_at if new.delay is None else tx.now + new.delay


def _stamps(tx: Transaction, queue: QueueRow, new: NewJob) -> tuple[int, int]:
    """Order stamp and due time: by its run-at, else by its acceptance; a lane never lets run-at lie back."""
    queue.time = max(queue.time, tx.now)
    asked = _requested_due(tx, new)
    due = tx.now if asked is None else asked
    time = queue.time if asked is None else asked
    if new.group is not None:
        time = max(time, queue.time)
    return time, due


def _put_existing(tx: Transaction, queue: QueueRow, new: NewJob) -> Put:
    """An id that is taken: one decision by the state of the job that has it."""
    old = tx.job(queue, new.id)
    if old is None or old.expired(tx.now) or (
        old.place > BLOCKED and (new.update or old.place != Bucket.COMPLETED or old.flags)
    ):  # fmt: skip
        if old is not None:
            tx.delete(queue, old)
        rows: list[Row] = []
        wakes: GroupTurns = {}
        answer = _accept_new(tx, queue, new, rows, wakes)
        _insert(tx, rows, wakes)
        return answer
    state = state_of(old, tx.now)
    if new.update is None or (old.place != RUNNING and old.format > tx.format):  # what cannot be read is not changed
        if old.place > BLOCKED:
            return Put(PutStatus.COMPLETED, state, old.result)
        return Put(PutStatus.DUPLICATE, state)
    if old.place == RUNNING:
        return _put_successor(tx, queue, new, new.update)
    held = old.holds_group
    apply_update(tx, old, new, new.update)
    enter_and_save(tx, queue, old, held)
    tx.emit("updated", queue, old.id, old.attempts)
    return Put(PutStatus.UPDATED, state_of(old, tx.now))


def _put_successor(tx: Transaction, queue: QueueRow, new: NewJob, flags: Update) -> Put:
    """The id is running: a blocked successor is made, or the one there is changed."""
    successor = tx.job(queue, new.id, twin=1)
    if successor is None:
        time, due = _stamps(tx, queue, new)
        row = (
            queue.k, new.id, 1, BLOCKED, -new.priority, time, queue.next_seq(), due, tx.now, new.group,
            flags_to_bits(flags), tx.format, new.headers, new.limits, new.payload,
        )  # fmt: skip
        tx.run_with_rows("put_insert", [row])
        queue.count(BLOCKED, 1)
        tx.emit("enqueued", queue, new.id, 0)
        return Put(PutStatus.BLOCKED, State.BLOCKED)
    if successor.format > tx.format:
        return Put(PutStatus.DUPLICATE, State.RUNNING)
    apply_update(tx, successor, new, flags)
    successor.format = tx.format
    successor.flags = flags_to_bits(merge_flags(flags_of(successor.flags or 0), flags))
    tx.save(queue, successor)
    tx.emit("updated", queue, successor.id, successor.attempts)
    return Put(PutStatus.UPDATED, State.BLOCKED)


def apply_update(tx: Transaction, job: JobRow, new: NewJob | JobRow, flags: Update) -> None:
    """Change a waiting (or blocked) job in memory, by the flags of the one that asks."""
    if flags.payload:
        job.payload, job.headers = new.payload, new.headers
    if flags.limits:
        job.limits = new.limits
    if isinstance(new, NewJob):
        asked = _requested_due(tx, new)
    else:
        asked = new.due if new.due > tx.now else None
    due = moved_due(flags.run_at, asked, tx.now, job.due)
    if due is not None:
        job.due, job.retried = due, 0
        job.time = due if job.grp is None else max(due, tx.now)
    if flags.resets:
        job.attempts = job.retries = job.stalls = job.timeouts = 0
        job.solo, job.error = 0, None


def moved_due(flag: MoveWhen, asked: int | None, now: int, due: int) -> int | None:
    """The new due time that an update gives, or None for no move. No run-at means: as soon as possible."""
    if flag is False:
        return None
    if asked is None:
        return now if flag in (True, "if_earlier") and due > now else None
    if flag == "if_later":
        return asked if asked > due else None
    if flag == "if_earlier":
        return asked if asked < due else None
    return asked if asked != due else None


def merge_flags(first: Update, later: Update) -> Update:
    """The flags of a successor that was asked for twice: whatever either of them wanted changed."""
    run_at = first.run_at
    if later.run_at is not False and first.run_at is not True:
        run_at = later.run_at
    return Update(
        payload=first.payload or later.payload,
        run_at=run_at,
        reset_counts=first.resets or later.resets,
        limits=first.limits or later.limits,
    )
