"""set_limit, get_limit and limits: the stored limits, and the state of their gates."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.model.gate import NEW_GATE
from penstock.model.job import State
from penstock.model.limit import NO_RULE, Rule
from penstock.model.why import MAX_AHEAD
from penstock.storage.limiting import LimitPage, LimitRecord, Scope
from penstock.storage.sqlite.admin import wake_many
from penstock.storage.sqlite.gates import (
    FIRST,
    begin_limits,
    family_gate,
    family_of_queue,
    family_queues,
    gates_of,
    lane_of,
    mark_changed,
    ms_of,
    next_opening,
    opening,
    rule_of,
    runs_of,
)
from penstock.storage.sqlite.ordering import promote
from penstock.storage.sqlite.reads import counts, promote_all
from penstock.storage.sqlite.rows import FOREVER
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["get_limit", "limits", "parse_cursor", "set_limit"]


def set_limit(tx: Transaction, scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
    """Set a limit if its version is still this one; returns the new version, 0 if it is removed, None if it is not."""
    key = (tx.namespace, scope.name, scope.kind, scope.group or "")
    row = tx.one("limit_get", *key)
    if (row[0] if row else 0) != version:
        return None
    queue = None if scope.kind == "family" else tx.queue(scope.name)
    if queue is not None:
        promote(tx, queue)
    if rule is None and not settings:
        tx.run("limit_drop", *key)
        if scope.kind == "family":
            state = family_gate(tx, scope.name)
            state.gate, state.dirty = NEW_GATE, True
    else:
        packed = None if rule is None else replace(rule, changed_at=tx.now).pack()
        tx.run("limit_set", *key, version + 1, packed, settings)
    tx.forget_rules()
    if scope.kind == "family":
        _change_family(tx, scope.name)
    elif queue is not None:
        begin_limits(tx, queue)
        if scope.kind != "queue":
            mark_changed(tx, queue, scope.group)
        wake_many(tx, queue)
    return 0 if rule is None and not settings else version + 1


def _change_family(tx: Transaction, family: str) -> None:
    """Make the queues of a family limited, and wake idle workers of some of them."""
    for queue in family_queues(tx, family):
        begin_limits(tx, queue)
    tx.notify_family(family)


def get_limit(tx: Transaction, scope: Scope) -> LimitRecord | None:
    """Return a limit and the state of its gate; None if the caller must repeat the read: more jobs are due."""
    row = tx.one("limit_get", tx.namespace, scope.name, scope.kind, scope.group or "")
    version, _, settings = row or (0, None, b"")
    record = LimitRecord(
        scope=scope, rule=rule_of(tx, scope), version=version if type(version) is int else 0,
        settings=settings if type(settings) is bytes else b"",
    )  # fmt: skip
    if scope.kind == "family":
        queues = family_queues(tx, scope.name)
    else:
        own = tx.queue(scope.name)
        queues = [] if own is None else [own]
    if sum(promote_all(tx, queue) for queue in queues):
        return None
    if scope.kind == "groups":
        if not queues:
            return record
        opens = next_opening(tx, queues[0], None)
        return replace(record, closed=tx.one("gates_closed", queues[0].k)[0], opens=opens)
    if scope.group is not None:
        return _group_record(tx, queues[0], scope.group, record) if queues else record
    running = sum(runs_of(tx, queue) for queue in queues)
    waiting = sum(counts(tx, queue.name)[State.QUEUED] for queue in queues)
    rule, pause, gate = record.rule or NO_RULE, None, NEW_GATE
    if scope.kind == "family":
        gate = family_gate(tx, scope.name).gate
    elif queues:
        gate, pause = gates_of(tx, queues[0]).gate, queues[0].live_pause(tx.now)
    opens = max(ms_of(gate, rule, 1, tx.now), pause.until or FOREVER if pause else 0)
    shown = tx.now < opens < FOREVER and not (rule.concurrency and running >= rule.concurrency)
    return replace(record, running=running, waiting=waiting, pause=pause, opens=opens if shown else None)


def _group_record(tx: Transaction, queue: QueueRow, group: str, record: LimitRecord) -> LimitRecord:
    """Return the limit of a group with the state of its gate."""
    lane = lane_of(tx, queue, group)
    first = tx.one("lane_first", queue.k, group, *FIRST)
    if not queue.limited:
        lane.backoffs = tx.one("lane_counts", queue.k, group)[1]
    opens = opening(tx, queue, group, lane, first[2] if first else 1, dry=True)
    return replace(
        record,
        running=lane.runs,
        waiting=tx.one("lane_waiting", queue.k, group, MAX_AHEAD)[0],
        pause=lane.live_pause(tx.now),
        opens=None if opens == FOREVER else opens,
    )


def parse_cursor(after: str | None) -> tuple[int, str]:
    """Return what a cursor of `limits` names: the kind of the last limit, and its group."""
    if after is None:
        return (0, "")
    if after[:1] not in ("1", "2", "3", "4"):
        raise ValueError(f"after must be a cursor that limits gave, not {after!r}")
    return int(after[:1]), after[1:]


def limits(tx: Transaction, name: str, after: tuple[int, str], limit: int) -> LimitPage | None:
    """Return a page of the limits that hold for a queue; None if the caller must repeat the read."""
    kind, group = after
    family = family_of_queue(name)
    scopes = [(2, Scope("queue", name)), (3, Scope("groups", name))]
    if family is not None:
        scopes.insert(0, (1, Scope("family", family)))
    found = [
        (number, scope) for number, scope in scopes
        if number > kind and tx.one("limit_get", tx.namespace, scope.name, scope.kind, "") is not None
    ]  # fmt: skip
    queue = tx.queue(name)
    rows = tx.all("limits_groups", tx.namespace, name, queue.k if queue else -1, tx.now, group, limit + 1)
    found += [(4, Scope("group", name, group)) for (group,) in rows if isinstance(group, str)]
    records = [get_limit(tx, scope) for _, scope in found[:limit]]
    page = [record for record in records if record is not None]
    if len(page) < len(records):
        return None
    number, last = found[limit - 1] if len(found) > limit else (0, None)
    return LimitPage(page, None if last is None else f"{number}{last.group or ''}")
