"""put: nothing → queued / scheduled / blocked, or updated in place, or the existing state."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.errors import QueueFull
from penstock.model.job import NewJob, State, Update
from penstock.storage.base import EventRecord, Put, PutStatus
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.fast_path import is_plain_job
from penstock.storage.sqlite.fast_put import allows_fast_put
from penstock.storage.sqlite.flow_rows import is_durable
from penstock.storage.sqlite.flows import apply_effects, begin_flow, is_suspended, join, refuse_child
from penstock.storage.sqlite.ordering import enter_and_save, leave_group, promote, update_turn
from penstock.storage.sqlite.rows import (
    BLOCKED,
    LANE,
    LATER,
    PARKED,
    READY,
    RETRYING,
    RUNNING,
    SUSPENDED,
    Bucket,
    JobRow,
    flags_of,
    flags_to_bits,
    state_of,
)  # fmt: skip
from penstock.storage.sqlite.sql import Blob
from penstock.storage.sqlite.transaction import QueueRow, Transaction
from penstock.storage.sqlite.update import apply_update, merge_flags, note_start_by, requested_due, start_by_of
from penstock.storage.sqlite.windows import take_window, window_end

__all__ = ["QUEUED", "put", "put_bounded"]

QUEUED = Put(PutStatus.QUEUED, State.QUEUED)
_SCHEDULED = Put(PutStatus.SCHEDULED, State.SCHEDULED)
_SUSPENDED = Put(PutStatus.SUSPENDED, State.SUSPENDED)

#: The slots of the jobs that `max_queued` counts: those that are queued, scheduled or retrying.
WAITING = (LATER, READY, LANE, RETRYING, PARKED)

#: A caller that puts a job with a `waiter` starts to wait for it within this time (ms).
WAITER_MS = 60_000

Row = tuple[object, ...]
#: Rows of `lane_wake` for groups that may enter the rotation, by queue name.
GroupTurns = dict[str, list[tuple[int, str, int | None, int]]]


def put_bounded(tx: Transaction, jobs: Sequence[NewJob], max_queued: int) -> list[Put] | QueueFull:
    """Accept jobs of one queue as `put` does; returns the error, and changes nothing, if too many would then wait."""
    queue = tx.queue(jobs[0].queue)
    waiting = 0
    if queue is not None:
        expire(tx, queue)
        waiting = tx.one("waiting", queue.k)[0] + sum(queue.deltas[slot] for slot in WAITING)
    taken = _taken_ids(tx, jobs)
    free = {new.id for new in jobs if (new.queue, new.id) not in taken}
    counted = [new for new in jobs if not is_suspended(new.flow)]
    added = {new.id for new in counted if new.id in free and not _is_held(tx, queue, new)}
    if queue is not None:
        known = (new for new in counted if new.id not in free)
        added.update(
            {new.id for new in known if may_replace(tx, tx.job(queue, new.id), new) and not _is_held(tx, queue, new)}
        )
    if added and waiting + len(added) > max_queued:
        return QueueFull(jobs[0].queue, waiting, max_queued, len(added))
    return put(tx, jobs)


def may_replace(tx: Transaction, old: JobRow | None, new: NewJob) -> bool:
    """Return whether a put makes a new job although this one has its id."""
    return old is None or old.expired(tx.now) or (
        old.ended and bool(new.update or old.place != Bucket.COMPLETED or old.flags)
    )  # fmt: skip


def _is_held(tx: Transaction, queue: QueueRow | None, new: NewJob) -> bool:
    """Return whether an open window refuses a put that could make a new job otherwise."""
    return queue is not None and new.update is None and window_end(tx, queue, new) is not None


def put(tx: Transaction, jobs: Sequence[NewJob]) -> list[Put]:
    """Accept jobs in order: new ones are collected and inserted together, jobs with a taken id one by one."""
    queues: dict[str, QueueRow] = {}
    for new in jobs:
        if new.queue not in queues:
            queues[new.queue] = queue = tx.ensure_queue(new.queue)
            expire(tx, queue)
    taken = _taken_ids(tx, jobs)
    if tx.fast and not taken and len(queues) == 1 and _put_plain(tx, queues[jobs[0].queue], jobs):
        return [QUEUED] * len(jobs)
    rows: list[Row] = []
    turns: GroupTurns = {}
    answers: list[Put] = []
    for new in jobs:
        queue = queues[new.queue]
        if new.flow is not None:
            _insert(tx, rows, turns)
            answers.append(_put_flow(tx, queue, new))
            taken.add((new.queue, new.id))
            continue
        if not new.fresh or taken:
            key = (new.queue, new.id)
            if key in taken:
                _insert(tx, rows, turns)
                answer = _put_existing(tx, queue, new)
                if new.window is not None and answer.status is PutStatus.DUPLICATE and answer.until is None:
                    answer = replace(answer, until=window_end(tx, queue, new))
                answers.append(answer)
                continue
            taken.add(key)
        answers.append(_accept_new(tx, queue, new, rows, turns))
    _insert(tx, rows, turns)
    for new, answer in zip(jobs, answers, strict=True):
        if new.waiter is not None and answer.state is not State.COMPLETED and not answer.refused:
            tx.run("wait_add", tx.namespace, new.queue, new.id, new.waiter, "", tx.wall + WAITER_MS)
            tx.mark_awaited(new.queue)
    return answers


def _put_flow(tx: Transaction, queue: QueueRow, new: NewJob) -> Put:
    """Put a job with a part in flows, and apply the effects of that."""
    answer = refuse_child(tx, new)
    if answer is None:
        answer = _put_existing(tx, queue, new)
        if answer.status is PutStatus.DUPLICATE and answer.until is None:
            answer = replace(answer, until=window_end(tx, queue, new) if new.window is not None else None)
        join(tx, queue, new, answer)
        apply_effects(tx)
    return answer


def _taken_ids(tx: Transaction, jobs: Sequence[NewJob]) -> set[tuple[str, str]]:
    """Return queue and id of the jobs whose ids are taken; a fresh id (`NewJob.fresh`) is not looked up."""
    ids_by_queue: dict[str, list[str]] = {}
    for new in jobs:
        if not new.fresh:
            ids_by_queue.setdefault(new.queue, []).append(new.id)
    taken: set[tuple[str, str]] = set()
    for name, ids in ids_by_queue.items():
        queue = tx.queue(name)
        if queue is not None:
            taken.update((name, id) for (id,) in tx.run_with_list("put_known", (queue.k,), ids))
    return taken


def _add_ready(tx: Transaction, queue: QueueRow, jobs: Sequence[NewJob]) -> None:
    """Count jobs that were inserted as ready, emit their events and wake idle workers."""
    queue.deltas[READY] += len(jobs)
    queue.ready_added = True
    tx.notify_work(queue, len(jobs))
    if tx.wants("enqueued", queue.name):
        tx.emit_all([EventRecord("enqueued", queue.name, new.id, tx.now) for new in jobs])


def _put_plain(tx: Transaction, queue: QueueRow, jobs: Sequence[NewJob]) -> bool:
    """Insert plain jobs of one queue in one statement; False, with nothing done, if the jobs are not such.

    The fast path of `_accept_new` for each job; the caller has checked that no id is taken.
    `tests/conformance/test_model.py` proves it equal.
    """
    flat: list[object] = []
    fresh = True
    for new in jobs:
        if not is_plain_job(new):
            return False
        fresh = fresh and new.fresh
        flat += (new.id, Blob(new.payload), -new.priority)
    if not (fresh or len(jobs) == 1 or len({new.id for new in jobs}) == len(jobs)):
        return False
    queue.time = max(queue.time, tx.now)
    shared = (queue.k, queue.time, tx.now, tx.format)
    if len(jobs) == 1:  # the INSERT … SELECT of `put_plain` makes a transaction of one job a fifth slower
        tx.run("put_one", *shared, queue.seq + 1, *flat)
    else:
        tx.run_with_numbered("put_plain", shared, queue.seq + 1, 3, flat)
    queue.seq += len(jobs)
    _add_ready(tx, queue, jobs)
    if allows_fast_put(tx, queue):
        tx.fast_put_queue = queue.name, queue.k
    return True


def _insert(tx: Transaction, rows: list[Row], turns: GroupTurns) -> None:
    """Write the collected rows of jobs and groups, and empty both lists."""
    if rows:
        tx.run_with_rows("put_insert", rows)
        rows.clear()
    for name, groups in turns.items():
        queue = tx.ensure_queue(name)
        if not queue.limited:
            tx.notify_work(queue, tx.run_with_rows("lane_wake", groups))
            continue
        first = {group: (time, seq) for _, group, time, seq in reversed(groups) if time is not None}
        for group in dict.fromkeys(group for _, group, _, _ in groups):
            update_turn(tx, queue, group, first.get(group))
    turns.clear()


def _accept_new(tx: Transaction, queue: QueueRow, new: NewJob, rows: list[Row], turns: GroupTurns) -> Put:
    """Accept a job whose id is free: collect its row, and its group's turn, for `_insert`.

    A window may hold the id; then the job is refused, or accepted for its end.
    """
    if new.group is not None:
        promote(tx, queue)
    until = None if new.window is None else window_end(tx, queue, new)
    if until is not None and new.update is None:
        return _held(until)
    tx.emit("enqueued", queue, new.id, 0)
    time, due = _stamps(tx, queue, new)
    if until is not None and due < until:
        time = due = until
    if new.window is not None:
        take_window(tx, queue, new.id, new.window, max(tx.now, due))
    seq = queue.next_seq()
    if is_suspended(new.flow):
        bucket, answer = SUSPENDED, _SUSPENDED
    elif due <= tx.now:
        bucket, answer = READY, QUEUED
        if new.group is None:
            tx.notify_work(queue)
        else:
            bucket = LANE
            turns.setdefault(queue.name, []).append((queue.k, new.group, tx.now, seq))
    else:
        bucket, answer = LATER, _SCHEDULED
        tx.notify_due(queue, due)
        if new.group is not None and queue.limited:  # its gate is looked at, and closed if the group is paused
            turns.setdefault(queue.name, []).append((queue.k, new.group, None, seq))
    queue.deltas[bucket] += 1
    start_by = start_by_of(tx, new)
    note_start_by(queue, start_by)
    rows.append(
        (queue.k, new.id, bucket, -new.priority, time, seq, due, tx.now, new.group,
         "" if start_by is None else start_by, new.cost, "" if new.window is None else new.window,
         "" if until is None else until, tx.format, Blob(new.headers), Blob(new.bounds), Blob(new.payload))
    )  # fmt: skip
    return answer


def _held(until: int) -> Put:
    """Return the answer to a put that an open window refuses."""
    return Put(PutStatus.DUPLICATE, State.COMPLETED, until=until)


def _stamps(tx: Transaction, queue: QueueRow, new: NewJob) -> tuple[int, int]:
    """Return order stamp and due time: the run_at of the job, or else the time of its acceptance.

    In a group, run_at never sorts a job before ones accepted earlier.
    """
    queue.time = max(queue.time, tx.now)
    requested = requested_due(tx, new, tx.now)
    due = tx.now if requested is None else requested
    time = queue.time if requested is None else requested
    if new.group is not None:
        time = max(time, queue.time)
    return time, due


def _put_existing(tx: Transaction, queue: QueueRow, new: NewJob) -> Put:
    """Put a job whose id is taken: replace, update or keep the old job, depending on its state."""
    old = tx.job(queue, new.id)
    if old is not None:
        promote(tx, queue)
        old = tx.job(queue, new.id)
    if old is None or may_replace(tx, old, new):
        if old is not None and not _is_held(tx, queue, new):
            tx.delete(queue, old)
        rows: list[Row] = []
        turns: GroupTurns = {}
        answer = _accept_new(tx, queue, new, rows, turns)
        stored = bool(rows)
        _insert(tx, rows, turns)
        if new.flow is not None and stored:
            begin_flow(tx, queue, new.id, new.flow)
            if answer is _SUSPENDED and not new.flow.dependencies:  # a plan of nothing has ended
                now = tx.job(queue, new.id)
                answer = Put(PutStatus.SUSPENDED, State.COMPLETED if now is None else state_of(now, tx.now))
        return answer
    state = state_of(old, tx.now)
    busy = old.place == RUNNING or is_durable(tx, queue, old)
    if new.update is None or (not busy and (old.format > tx.format or old.damaged)):
        # Also for a format of newer software or a damaged record, which cannot be read and so not updated.
        if old.ended:
            return Put(PutStatus.COMPLETED, state, old.result)
        return Put(PutStatus.DUPLICATE, state)
    if busy:
        return _put_successor(tx, queue, old, new, new.update)
    if has_both(old, new, new.update):
        return Put(PutStatus.DUPLICATE, state, refused=True)
    held, group, seq = old.holds_group, old.grp, old.seq
    apply_update(tx, queue, old, new, new.update)
    note_start_by(queue, old.start_by)
    if old.place == SUSPENDED:
        tx.save(queue, old)
        if old.grp != group:
            leave_group(tx, queue, group, held, (tx.now, seq))
    elif old.grp == group:
        enter_and_save(tx, queue, old, held)
    else:
        enter_and_save(tx, queue, old, held=False)
        leave_group(tx, queue, group, held, (tx.now, seq))
    tx.emit("updated", queue, old.id, old.attempts)
    return Put(PutStatus.UPDATED, state_of(old, tx.now))


def _put_successor(tx: Transaction, queue: QueueRow, running: JobRow, new: NewJob, flags: Update) -> Put:
    """Put a job whose id is running: create its blocked successor, or update the one there is."""
    successor = tx.job(queue, new.id, twin=1)
    flags = flags if new.group is not None else replace(flags, group=False)
    state = state_of(running, tx.now)
    if successor is not None and (successor.format > tx.format or successor.damaged):
        return Put(PutStatus.DUPLICATE, state)
    if _cannot_block(tx, running, successor, new, flags):
        return Put(PutStatus.DUPLICATE, state, refused=True)
    if successor is None:
        time, due = _stamps(tx, queue, new)
        start_by = start_by_of(tx, new)
        note_start_by(queue, start_by)
        row = (
            queue.k, new.id, 1, BLOCKED, -new.priority, time, queue.next_seq(), due, tx.now, new.group,
            start_by, new.cost, new.window, flags_to_bits(flags), tx.format, new.headers, new.bounds, new.payload,
            running.begun if running.place == RUNNING else tx.now,
        )  # fmt: skip
        tx.run("put_successor", *row)
        if new.flow is not None:
            begin_flow(tx, queue, new.id, new.flow, twin=1)
        queue.count(BLOCKED, 1)
        tx.emit("enqueued", queue, new.id, 0)
        return Put(PutStatus.BLOCKED, State.BLOCKED)
    apply_update(tx, queue, successor, new, flags)
    note_start_by(queue, successor.start_by)
    successor.format = tx.format
    successor.flags = flags_to_bits(merge_flags(flags_of(successor.flags or 0), flags))
    tx.save(queue, successor)
    tx.emit("updated", queue, successor.id, successor.attempts)
    return Put(PutStatus.UPDATED, State.BLOCKED)


def _cannot_block(tx: Transaction, running: JobRow, successor: JobRow | None, new: NewJob, flags: Update) -> bool:
    """Return whether the successor, or the running job it may be merged into, would have a group and a priority."""
    rank, group = -new.priority, new.group
    if successor is not None:
        if has_both(successor, new, flags):
            return True
        rank = rank if flags.priority else successor.rank
        group = group if flags.group else successor.grp
        flags = merge_flags(flags_of(successor.flags or 0), flags)
    rank = rank if flags.priority else running.rank
    group = group if flags.group else running.grp
    # A running job of a newer format is replaced by its successor, not merged.
    return running.format <= tx.format and rank != 0 and group is not None


def has_both(job: JobRow, new: NewJob, flags: Update) -> bool:
    """Return whether an update would leave a job with a group and a priority."""
    priority = new.priority if flags.priority else job.rank
    group = new.group if flags.group and new.group is not None else job.grp
    return priority != 0 and group is not None
