"""The closed gate that a job waits for, for `why`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.model.gate import Gate
from penstock.model.ids import family_of
from penstock.model.limit import Rule
from penstock.model.why import MAX_HOLDERS, GatePosition, Holder
from penstock.storage.limiting import Scope
from penstock.storage.sqlite.gates import (
    family_gate,
    family_queues,
    family_rule,
    gates_of,
    group_rule,
    lane_of,
    ms_of,
    rule_of,
    runs_of,
)
from penstock.storage.sqlite.rows import JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["closed_gate"]


def closed_gate(tx: Transaction, queue: QueueRow, job: JobRow, first: bool) -> GatePosition | None:
    """Return the first closed gate of a queued job, outside in; `first`: no job of its group is before it."""
    rule = family_rule(tx, queue.name)
    if rule is not None:
        family = family_of(queue.name)
        queues = family_queues(tx, family)
        used = sum(runs_of(tx, each) for each in queues)
        gate = family_gate(tx, family).gate
        found = _closed(tx, gate, rule, job, used, _family_holders(tx, queues), kind="family", name=family)
        if found:
            return found
    rule = rule_of(tx, Scope("queue", queue.name))
    if rule is not None:
        gate, runs = gates_of(tx, queue).gate, _holders(queue, tx.all("holders", queue.k, MAX_HOLDERS))
        found = _closed(tx, gate, rule, job, runs_of(tx, queue), runs, kind="queue", name=queue.name)
        if found:
            return found
    if job.grp is None or not first:
        return None
    lane, rule = lane_of(tx, queue, job.grp), group_rule(tx, queue, job.grp)
    if lane.live_pause(tx.now) is not None:
        return None
    runs = _holders(queue, tx.all("lane_holders_named", queue.k, job.grp, MAX_HOLDERS))
    return _closed(tx, lane.gate, rule, job, lane.runs, runs, kind="group", name=queue.name, group=job.grp)


def _closed(
    tx: Transaction, gate: Gate, rule: Rule, job: JobRow, used: int, holders: list[Holder], **scope: Any
) -> GatePosition | None:
    """Return the position behind a gate, None if it is open for the job."""
    if rule.concurrency and used >= rule.concurrency:
        return GatePosition(rule=rule, reason="limit", used=used, holders=tuple(holders), **scope)
    opens = ms_of(gate, rule, job.cost, tx.now)
    return GatePosition(rule=rule, reason="rate", until=opens, **scope) if opens > tx.now else None


def _family_holders(tx: Transaction, queues: list[QueueRow]) -> list[Holder]:
    """Return the runs of several queues that began first."""
    found = [run for queue in queues for run in _holders(queue, tx.all("holders", queue.k, MAX_HOLDERS))]
    return sorted(found, key=lambda run: (run.since, run.queue, run.id))[:MAX_HOLDERS]


def _holders(queue: QueueRow, rows: Iterable[tuple[Any, Any, Any]]) -> list[Holder]:
    return [
        Holder(id, worker, begun, queue.name)
        for id, worker, begun in rows
        if type(id) is str and type(worker) is str and type(begun) is int
    ]
