"""claim: due → running, for several queues; promotes jobs whose time has come, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, repeat
from operator import lt, neg

from msgspec import structs

from penstock.model.job import MAX_PRIORITY, Claim
from penstock.storage.base import MAX_BATCH, MAX_BYTES, Claimed, EventRecord, Request
from penstock.storage.sqlite.claim_rows import (
    GROUP,
    ID,
    SOLO,
    Bound,
    Corrupt,
    N,
    Row,
    head_rows,
    read_rows,
    ready_rows,
    sound_turns,
    unreadable,
)
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.fast_path import can_claim_plain
from penstock.storage.sqlite.gates import has_rates, next_opening, room_of
from penstock.storage.sqlite.journal import claim_flows
from penstock.storage.sqlite.limited_claim import Selection
from penstock.storage.sqlite.ordering import promote, unpark
from penstock.storage.sqlite.rows import FOREVER, LANE, READY, RUNNING
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["claim", "next_id"]

_INT = {int}
_BYTES = {bytes}
_TEXT = {str}


def claim(tx: Transaction, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
    """Claim due jobs, queue by queue, in the order of the requests."""
    answer = Claimed([])
    look_at: int | None = None
    tick_at: int | None = None
    for request in requests:
        queue = tx.queue(request.queue)
        if queue is None:
            if tx.one("limit_any", tx.namespace, request.queue) is not None:
                answer.limited.append(request.queue)
            continue
        if queue.tick is not None:
            tick_at = queue.tick if tick_at is None else min(tick_at, queue.tick)
        if queue.limited:
            answer.limited.append(queue.name)
        if queue.paused is not None and queue.live_pause(tx.now) is None:
            queue.set_pause(None)
        if queue.paused is not None:
            alarm = _take_alarm(tx, queue, queue.pause_until)
        else:
            alarm = _claim_queue(tx, queue, request, worker, tx.now + lease, token, answer)
        look_at = alarm if look_at is None or (alarm is not None and alarm < look_at) else look_at
    return structs.replace(answer, look_at=look_at, tick_at=tick_at, now=None if tick_at is None else tx.now)


def _claim_queue(
    tx: Transaction, queue: QueueRow, request: Request, worker: str, until: int, token: str, answer: Claimed
) -> int | None:
    """Claim due jobs of one queue; returns when this worker must claim again, or None."""
    more = unpark(tx, queue, wake=False) | promote(tx, queue, wake=False)
    if expire(tx, queue):
        tx.notify_work(queue)
        return None
    opens: int | None = None
    taken = _claim_plain(tx, queue, request, worker, until, token)
    if taken is not None:
        found, left, bound = taken
        full = len(found) == request.limit
        answer.claims.extend(found)
    else:
        if queue.limited:
            selection = Selection(tx, queue, request.limit, request.batch, answer.corrupt)
            batches, left, bound = selection.run()
            opens = selection.opens
        else:
            batches, left, bound = _select_batches(tx, queue, request.limit, request.batch, answer.corrupt)
        _start_runs(tx, queue, batches, worker, until, token)
        full = len(batches) == request.limit
        claims = [_claim_of(queue.name, row, token, number) for number, batch in enumerate(batches) for row in batch]
        if queue.flows:
            numbers = [row[N] for batch in batches for row in batch]
            flows = claim_flows(tx, queue, numbers)
            claims = [structs.replace(each, flow=flows.get(n)) for each, n in zip(claims, numbers, strict=True)]
        answer.claims.extend(claims)
    if bound or (more and queue.limited):
        answer.more.append(queue.name)
    if left or more:
        tx.notify_work(queue)
        return None
    return None if full else _take_alarm(tx, queue, next_opening(tx, queue, opens))


def next_id(tx: Transaction, queue: QueueRow) -> str | None:
    """Return the id of the job that a claim would give next, or None."""
    if queue.limited:
        batches, _, _ = Selection(tx, queue, 1, 1, [], dry=True).run()
    else:
        batches, _, _ = _select_batches(tx, queue, 1, 1, [])
    return batches[0][0][ID] if batches else None


def _claim_plain(
    tx: Transaction, queue: QueueRow, request: Request, worker: str, until: int, token: str
) -> tuple[list[Claim], bool, bool] | None:
    """Claim jobs that never ran from a queue without groups, reading column by column; None if that does not apply.

    The fast path of `_select_batches`, `_start_runs` and `_claim_of`; `tests/conformance/test_model.py`
    proves it equal. True follows the claims if there are more jobs, and True if these reach the bound.
    """
    if not can_claim_plain(tx, queue, request) or (queue.limited and has_rates(tx, queue)):
        return None
    room = room_of(tx, queue) if queue.limited else MAX_BATCH
    if room <= 0:
        return [], False, False
    rows, left, bound = _plain_rows(tx, queue, min(request.limit, room, MAX_BATCH))
    left = left and (len(rows) < room or bound)
    if not rows:
        return [], left, bound
    numbers, ids, payloads, ranks, headers, bounds, created, due, plain, _ = zip(*rows, strict=True)
    if (
        {*map(type, payloads), *map(type, headers), *map(type, bounds)} != _BYTES
        or {*map(type, ranks), *map(type, created), *map(type, due)} != _INT
        or {*map(type, ids)} != _TEXT
        or ranks[0] < -MAX_PRIORITY
        or ranks[-1] > MAX_PRIORITY
        or not all(plain)
    ):
        return None
    _mark_running(tx, queue, numbers, worker, until, token)
    queue.count(READY, -len(rows))
    if tx.wants("started", queue.name):
        tx.emit_all([EventRecord("started", queue.name, id, tx.now, 1, worker) for id in ids])
    priorities = map(neg, ranks)
    claims = map(
        Claim, repeat(queue.name), ids, repeat(token), payloads, count(), repeat(None), priorities, headers, bounds,
        created, due,
    )  # fmt: skip
    return list(claims), left, bound


def _plain_rows(tx: Transaction, queue: QueueRow, limit: int) -> tuple[list[Row], bool, bool]:
    """Read the rows of `_claim_plain` one by one, so that no more than the bound is in memory."""
    rows: list[Row] = []
    cursor, room = tx.rows("claim_plain", queue.k, limit + 1, tx.format), MAX_BYTES
    for row in cursor:
        if room <= 0 or len(rows) == limit:
            cursor.close()
            return rows, True, room <= 0 or limit == MAX_BATCH
        rows.append(row)
        room -= row[-1]
    return rows, False, room <= 0 or len(rows) == MAX_BATCH


def _mark_running(
    tx: Transaction, queue: QueueRow, numbers: Sequence[int], worker: str, until: int, token: str
) -> None:
    """Mark rows as running."""
    size = len(numbers)
    # Jobs that were put together and have one priority are neighbours in the table.
    if size > 1 and numbers[-1] - numbers[0] == size - 1 and all(map(lt, numbers, numbers[1:])):
        tx.run("claim_range", token, worker, until, tx.now, numbers[0], numbers[-1])
    else:
        tx.run_with_list("claim_start", (token, worker, until, tx.now), numbers)
    queue.count(RUNNING, size)


def _select_batches(
    tx: Transaction, queue: QueueRow, limit: int, size: int, corrupt: Corrupt
) -> tuple[list[list[Row]], bool, bool]:
    """Return up to `limit` batches, whether jobs are left, and whether the batches have reached the bound.

    Neighbours without a group are together, a group is by itself. Two sorted streams are merged: the jobs without a
    group, and the groups in the rotation.
    """
    jobs = ready_rows(tx, queue, limit * size + 1, corrupt)
    turns, heads = _turns(tx, queue, limit + 1, size)
    batches: list[list[Row]] = []
    bound = Bound()
    open_batch = False
    at = turn = 0
    while at < len(jobs) or turn < len(turns):
        if bound.reached:
            return batches, True, True
        if turn == len(turns) or (at < len(jobs) and jobs[at][:3] < (0, *turns[turn][:2])):
            row = jobs[at]
            if open_batch and not row[SOLO] and not batches[-1][0][SOLO] and len(batches[-1]) < size:
                batches[-1].append(row)
            elif len(batches) == limit:
                return batches, True, False
            else:
                batches.append([row])
                open_batch = True
            bound.take([row])
            at += 1
        else:
            if len(batches) == limit:
                return batches, True, False
            head = [heads[turn]] if heads else head_rows(tx, queue, turns[turn][2], size, corrupt)
            turn += 1
            if head:
                batches.append(bound.take(head))
                open_batch = False
    return batches, False, bound.reached


def _turns(tx: Transaction, queue: QueueRow, limit: int, size: int) -> tuple[list[Row], list[Row]]:
    """Return the first groups in the rotation, and the first job of each if one is enough and all are readable.

    The second list is empty where `_head` must read the jobs of each group: that is its general path.
    """
    if not queue.has_groups:
        return [], []
    if size > 1 or not tx.fast:
        return sound_turns(tx, queue, tx.all("claim_turns", queue.k, limit)), []
    rows = sound_turns(tx, queue, read_rows(tx, "claim_heads", queue.k, limit))
    heads = [row[3:] for row in rows]
    return rows, [] if unreadable(tx, queue, heads) else heads


def _start_runs(
    tx: Transaction, queue: QueueRow, batches: list[list[Row]], worker: str, until: int, token: str
) -> None:
    """Mark the selected jobs as running, and their groups as held."""
    rows = [row for batch in batches for row in batch]
    _mark_running(tx, queue, [row[N] for row in rows], worker, until, token)
    held = [(len(batch), queue.k, batch[0][GROUP]) for batch in batches if batch[0][GROUP] is not None]
    grouped = sum(size for size, _, _ in held)
    queue.count(READY, grouped - len(rows))
    queue.count(LANE, -grouped)
    if queue.limited:
        pass  # the selection has written their groups
    elif len(held) == grouped:
        tx.run_with_list("claim_singles", (queue.k,), [group for _, _, group in held])
    else:
        tx.run_each("claim_lanes", held)
    if tx.wants("started", queue.name):
        for row in rows:
            tx.emit("started", queue, row[ID], row[11] + 1, worker)


def _claim_of(queue: str, row: Row, token: str, batch: int) -> Claim:
    rank, _, _, _, id, payload, group, headers, bounds, created, due, attempts, retries, stalls, timeouts, *_ = row
    return Claim(
        queue=queue, id=id, token=token, payload=payload, batch=batch, group=group, priority=-rank, headers=headers,
        bounds=bounds, created=created, run_at=due, attempts=attempts + 1, retries=retries, stalls=stalls,
        timeouts=timeouts,
    )  # fmt: skip


def _take_alarm(tx: Transaction, queue: QueueRow, opens: int | None) -> int | None:
    """Return when this worker must claim again for the next job to fall due; None if another worker will.

    `opens` is when a pause ends or a gate opens that jobs wait for, or None.
    """
    if queue.paused is not None and opens is None:
        return None
    due = tx.one("claim_next", queue.k)[0] if queue.has_later and queue.paused is None else FOREVER
    due = due if opens is None else min(due, opens)
    if queue.flows and queue.paused is None:
        due = min(due, tx.one("wake_next", queue.k)[0] or FOREVER)
    if due == FOREVER or (queue.alarm is not None and tx.now < queue.alarm <= due):
        return None
    queue.alarm, queue.marked = due, True
    return due
