"""The order of ready jobs and the rotation of groups.

A group is in the rotation if, and only if, it has a ready job and nothing holds it. Its running jobs
and its jobs in backoff hold it; `lanes.holds` counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.model.flow import signal_value
from penstock.storage.sqlite.flow_rows import GenerationRow, ensure_generation
from penstock.storage.sqlite.gates import gates_of, look_at_group, open_gates, release_limited
from penstock.storage.sqlite.journal import write_checkpoint
from penstock.storage.sqlite.rows import FOREVER, LANE, LARGEST, LATER, PARKED, READY, RETRYING, JobRow, read_job
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = [
    "change_holds",
    "enter",
    "enter_and_save",
    "leave_group",
    "must_promote",
    "park",
    "promote",
    "recount_holds",
    "release_groups",
    "resume",
    "save_with_hold",
    "unpark",
    "update_turn",
]

#: How many jobs one step promotes, and a whole transaction at most.
PROMOTE_STEP, PROMOTE_MAX = 1_000, 10_000

_INT_OR_NONE = frozenset({int, type(None)})


def change_holds(tx: Transaction, queue: QueueRow, group: str, change: int) -> None:
    """Add `change` to the number of jobs that hold a group; `update_turn` must follow."""
    tx.run("lane_hold", queue.k, group, change)


def update_turn(tx: Transaction, queue: QueueRow, group: str | None, turn: tuple[int, int] | None = None) -> None:
    """Put a group into the rotation or take it out, depending on its ready jobs and its holds.

    A group that enters gets the given turn, or else the last one. In a limited queue its gate decides too.
    """
    if group is None:
        return
    if queue.limited:
        look_at_group(tx, queue, group, turn)
        return
    row = tx.one("lane_get", queue.k, group)
    if row is not None and not (_INT_OR_NONE.issuperset(map(type, row)) and 0 <= row[0] <= LARGEST):
        row = recount_holds(tx, queue, group)
    if row is not None and row[2] is not None:
        # The group has changed, so the next claim checks the format of its first job again.
        tx.run("park_lane", None, queue.k, group)
        tx.notify_work(queue)
    held = row is not None and row[0] > 0
    if held or tx.one("lane_work", queue.k, group) is None:
        if row is None:
            return
        if not held:
            tx.run("lane_drop", queue.k, group)
        elif row[1] is not None:
            tx.run("lane_turn", queue.k, group, None, None)
    elif row is None or row[1] is None:
        time, seq = turn or (tx.now, queue.next_seq())
        tx.run("lane_turn", queue.k, group, time, seq)
        tx.notify_work(queue)


def recount_holds(tx: Transaction, queue: QueueRow, group: str) -> tuple[int, None, None]:
    """Replace the row of a group by one with the jobs that hold it now and no turn, and return it as `lane_get` does.

    `update_turn` uses it for a damaged row, so each caller of that must have saved its jobs before.
    """
    holds: int = tx.one("lane_holders", queue.k, group)[0]
    tx.run("lane_replace", queue.k, group, holds)
    queue.note_damage()
    return holds, None, None


def release_groups(tx: Transaction, queue: QueueRow, groups: Sequence[str]) -> None:
    """Take one hold from each of these groups, with few statements where all are released entirely.

    The general path is `change_holds` and `update_turn` for each group.
    """
    counts = Counter(groups)
    last = list(dict.fromkeys(reversed(groups)))[::-1]  # in the order of the last job of each
    many = len(last) > 1 and not queue.limited
    found = {row[0]: row[1:] for row in tx.run_with_list("lanes_look", (queue.k,), last)} if many else {}
    if queue.limited and tx.fast and len(groups) > 1 and release_limited(tx, queue, groups):
        return
    if queue.limited or any(found.get(group, ())[:3] != (counts[group], None, None) for group in last):
        for group in groups:
            change_holds(tx, queue, group, -1)
            update_turn(tx, queue, group)
        return
    turns: list[object] = [group for group in last if found[group][3]]
    if turns:
        tx.run_with_numbered("lanes_turn", (tx.now,), queue.seq + 1, 1, turns, queue.k)
        queue.seq += len(turns)
        queue.dirty = True
        tx.notify_work(queue, len(turns))
    tx.run_with_list("lanes_drop", (queue.k,), [group for group in last if not found[group][3]])


def leave_group(tx: Transaction, queue: QueueRow, group: str | None, held: bool, turn: tuple[int, int] | None) -> None:
    """Take a saved job's hold from the group that it has left, and give the group the turn if it is free by that."""
    if group is not None:
        if held:
            change_holds(tx, queue, group, -1)
        update_turn(tx, queue, group, turn)


def save_with_hold(tx: Transaction, queue: QueueRow, job: JobRow, held: bool) -> None:
    """Write a record back and update the holds of its group; `held` is whether it held the group before."""
    tx.save(queue, job)
    if job.grp is not None and job.holds_group != held:
        change_holds(tx, queue, job.grp, -1 if held else 1)


def enter(tx: Transaction, queue: QueueRow, job: JobRow) -> None:
    """Set the bucket of a waiting job: ready or in its group if it is due, or else `LATER`."""
    job.format = max(job.format, tx.format)
    if job.due <= tx.now:
        job.retried = 0
        job.place = READY if job.grp is None else LANE
        if job.grp is None:
            tx.notify_work(queue)
    else:
        job.place = LATER
        tx.notify_due(queue, job.due)


def enter_and_save(tx: Transaction, queue: QueueRow, job: JobRow, held: bool) -> None:
    """Set the bucket of a job and save it; a group that enters the rotation by it gets its turn now."""
    enter(tx, queue, job)
    save_with_hold(tx, queue, job, held)
    update_turn(tx, queue, job.grp, (tx.now, job.seq))


def park(tx: Transaction, queue: QueueRow, format: int) -> None:
    """Record that a job of this format was parked, and wake a worker: it may know the format."""
    if queue.parked is None or format < queue.parked:
        queue.parked, queue.marked = format, True
    tx.notify_work(queue)


def unpark(tx: Transaction, queue: QueueRow, wake: bool = True) -> bool:
    """Return parked jobs and groups of known formats to their old position in the order.

    At most `PROMOTE_MAX` of each. Returns True if there are more, or in a read if there are any.
    """
    if queue.parked is None or queue.parked > tx.format:
        return False
    if not tx.write:
        return True
    back = tx.run("unpark_jobs", queue.k, tx.format, PROMOTE_MAX)
    queue.count(PARKED, -back)
    queue.count(READY, back)
    back += tx.run("unpark_lanes", queue.k, tx.format, PROMOTE_MAX)
    lowest = tx.one("park_lowest", queue.k)[0]
    queue.parked, queue.marked = None if lowest == FOREVER else lowest, True
    if wake:
        tx.notify_work(queue, back)
    return lowest <= tx.format


def must_promote(tx: Transaction, queue: QueueRow) -> bool:
    """Return whether `promote` would look at closed groups, resume jobs or make them ready; nothing is changed."""
    if queue.limited:
        gates = gates_of(tx, queue)
        stale = tx.now < gates.looked or tx.all("gates_stale", queue.k, gates.epoch, 1)
        if stale or tx.all("gates_due", queue.k, tx.now, 1):
            return True
    if queue.flows and tx.one("wake_left", queue.k, tx.now) is not None:
        return True
    return queue.has_later and tx.one("promote_left", queue.k, tx.now) is not None


def promote(tx: Transaction, queue: QueueRow, wake: bool = True) -> bool:
    """Make due jobs ready: scheduled ones before retrying ones, each by due time.

    Every verb that reads the order or gives a group its turn begins with it, so the order never depends on which
    process read the queue first. In a limited queue it begins with a look at closed groups. A put of a job without a
    group and with a free id, and the settlement of a job without a group and a successor, do not need it. Once
    per transaction is enough, since `tx.now` is fixed. At most `PROMOTE_MAX` jobs. Returns True if more are due, or in
    a read if any are.
    """
    if queue.promoted:
        return False
    if not tx.write:
        queue.promoted = not must_promote(tx, queue)
        return not queue.promoted
    closed = bool(queue.limited) and open_gates(tx, queue, wake)
    woken = bool(queue.flows) and tx.one("wake_left", queue.k, tx.now) is not None
    if not woken and (not queue.has_later or tx.one("promote_left", queue.k, tx.now) is None):
        queue.promoted = not closed
        return closed
    left, entered = PROMOTE_MAX, 0
    for retried in (0, 1):
        while left > 0 and (rows := tx.all("promote_due", queue.k, retried, tx.now, PROMOTE_STEP)):
            left -= len(rows)
            entered += _promote(tx, queue, rows, retried)
    left -= _wake(tx, queue, max(left, 0)) if woken else 0
    queue.promoted = left > 0 and not closed
    if wake:
        tx.notify_work(queue, entered)
    return not queue.promoted


def _wake(tx: Transaction, queue: QueueRow, limit: int) -> int:
    """Resume suspended jobs whose wake time has come, and return how many; a wait for a signal has timed out then."""
    rows = tx.all("wake_due", queue.k, tx.now, limit)
    for row in rows:
        job = read_job(row)
        generation = ensure_generation(tx, queue, job)
        wait = generation.wait
        if wait is not None:
            write_checkpoint(tx, queue, job, wait.checkpoint, "signal", signal_value(None))
        resume(tx, queue, job, generation, job.until)
    return len(rows)


def resume(tx: Transaction, queue: QueueRow, job: JobRow, generation: GenerationRow, turn: int | None = None) -> None:
    """Queue a suspended job at its place; a group that enters the rotation by it gets this turn, or its turn now."""
    held = job.holds_group
    generation.set_wait(None)
    generation.first = generation.count = generation.waiting = 0
    job.retried, job.until = 0, None
    tx.emit("resumed", queue, job.id, job.attempts)
    enter(tx, queue, job)
    save_with_hold(tx, queue, job, held)
    update_turn(tx, queue, job.grp, (tx.now if turn is None else turn, job.seq))


def _promote(tx: Transaction, queue: QueueRow, rows: list[tuple[int, str | None, int, int]], retried: int) -> int:
    """Promote some jobs and return how many jobs and groups became available by that."""
    plain = [n for n, group, _, _ in rows if group is None]
    tx.run_with_list("promote_enter", (READY,), plain)
    queue.count(RETRYING if retried else LATER, -len(rows))
    queue.count(READY, len(plain))
    queue.count(LANE, len(rows) - len(plain))
    if queue.limited:
        _promote_limited(tx, queue, rows, retried)
        return len(plain)
    tx.run_with_list("promote_enter", (LANE,), [n for n, group, _, _ in rows if group is not None])
    grouped = [(queue.k, group, due, seq) for _, group, due, seq in rows if group is not None]
    if not retried:
        return len(plain) + tx.run_with_rows("lane_wake", grouped)
    for _, group, due, seq in grouped:
        change_holds(tx, queue, group, -1)
        update_turn(tx, queue, group, (due, seq))
    return len(plain)


def _promote_limited(
    tx: Transaction, queue: QueueRow, rows: list[tuple[int, str | None, int, int]], retried: int
) -> None:
    """Promote the jobs of groups of a limited queue one by one: each may change the price of its group's next start."""
    for n, group, due, seq in rows:
        if group is not None:
            tx.run_with_list("promote_enter", (LANE,), [n])
            if retried:
                tx.run("lane_backoff", queue.k, group, -1)
                change_holds(tx, queue, group, -1)
            look_at_group(tx, queue, group, (due, seq))
