"""groups: the groups in which jobs are queued or in backoff, by their turns or by name."""

from __future__ import annotations

from struct import Struct

from penstock.model.job import State
from penstock.storage.observing import (
    MAX_GROUP_WAITING,
    QueueGroup,
    QueueGroupPage,
    format_group_cursor,
    parse_group_cursor,
)
from penstock.storage.sqlite.gates import lane_of
from penstock.storage.sqlite.reads import promote_all
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["groups", "parse_start"]

#: Groups that a call looks at, at most, to find those that are not in the rotation.
WALK = 1_000

#: Where a page begins: after a turn, or from a name on.
Start = tuple[int, int] | str

#: Before every turn, which is a time and a number.
FIRST_TURN = (-(1 << 62), 0)
_TURN = Struct(">qq")


def parse_start(after: str | None, prefix: str) -> Start:
    """Return where a page begins; raises `ValueError` if `after` is no cursor."""
    if after is None:
        return prefix if prefix else FIRST_TURN
    turns, position = parse_group_cursor(after)
    return _TURN.unpack(position[: _TURN.size]) if turns else position.decode() + "\0"


def groups(tx: Transaction, name: str, start: Start, limit: int, prefix: str) -> QueueGroupPage | None:
    """Return a page of groups; None if more jobs are due than one transaction promotes, so the caller must repeat."""
    queue = tx.queue(name)
    if queue is None:
        return QueueGroupPage([])
    if promote_all(tx, queue):
        return None
    found: list[QueueGroup] = []
    if isinstance(start, tuple):
        rows = tx.all("groups_rotation", queue.k, *start, WALK)
        for looked, (group, *turn) in enumerate(rows, 1):
            if (each := _group(tx, queue, group)).rotates:
                found.append(each)
            if len(found) == limit or looked == WALK:
                return QueueGroupPage(found, format_group_cursor(True, _TURN.pack(*turn)))
        start = prefix
    return _by_name(tx, queue, found, start, limit, prefix)


def _by_name(
    tx: Transaction, queue: QueueRow, found: list[QueueGroup], first: str, limit: int, prefix: str
) -> QueueGroupPage:
    """Add groups from a name on: those with the prefix, or without one those that are not in the rotation."""
    for _ in range(WALK):
        names = [each for each in tx.one("groups_waiting", queue.k, first) if isinstance(each, str)]
        group = min(names, key=str.encode, default=None)
        if group is None or not group.startswith(prefix):
            return QueueGroupPage(found)
        if len(found) == limit:
            break
        each = _group(tx, queue, group)
        if prefix or not each.rotates:
            found.append(each)
        first = group + "\0"
    return QueueGroupPage(found, format_group_cursor(False, first[:-1].encode()))


def _group(tx: Transaction, queue: QueueRow, group: str) -> QueueGroup:
    lane = lane_of(tx, queue, group)
    held = max(lane.holds, 0)
    first = tx.one("groups_head", queue.k, group)
    head, state = tx.one("groups_backoff", queue.k, group), State.RETRYING
    if head is None:
        head, state = (None, State.RUNNING) if held else (first and first[:2], State.QUEUED)
    id, due = head or (None, None)
    newer = first is not None and isinstance(first[2], int) and first[2] > tx.format
    return QueueGroup(
        name=group, head=id if isinstance(id, str) else None, state=state, due=due if isinstance(due, int) else None,
        waiting=tx.one("groups_count", queue.k, group, MAX_GROUP_WAITING)[0], held=held,
        rotates=lane.turn_time is not None and lane.parked is None and first is not None and not newer,
        pause=lane.live_pause(tx.now),
    )  # fmt: skip
