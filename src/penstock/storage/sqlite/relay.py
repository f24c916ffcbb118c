"""signal, extend and relay: what comes to suspended jobs from outside, and the messages of the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.model.flow import (
    ABANDONED,
    ABANDONED_MS,
    MAX_SIGNALS,
    UNMET_MS,
    End,
    Extended,
    JobRef,
    Relayed,
    SignalStatus,
    dropped_error,
    signal_value,
)
from penstock.model.ids import family_of
from penstock.storage.sqlite.cancel import cancel_job
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.finish import finish
from penstock.storage.sqlite.flow_rows import (
    FINAL,
    PLAN,
    REVIVING,
    Cascade,
    Effect,
    GenerationRow,
    add_notices,
    ensure_generation,
    generation_of,
    notice_of,
)
from penstock.storage.sqlite.flows import (
    add_dependencies,
    apply_effects,
    close_dependency,
    evaluate,
    living,
    open_dependency,
    recount,
)
from penstock.storage.sqlite.journal import write_checkpoint
from penstock.storage.sqlite.ordering import promote, resume
from penstock.storage.sqlite.revive import revive_one
from penstock.storage.sqlite.rows import COMPLETED, STATES, SUSPENDED, Bucket, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["extend", "is_needed", "relay", "signal"]

#: Flows that one call ends because their producers are silent.
ABANDONED_AT_ONCE = 100

_decode = msgspec.msgpack.Decoder(Effect | Cascade).decode
_encode = msgspec.msgpack.Encoder().encode


def signal(tx: Transaction, name: str, id: str, signal: str, value: bytes) -> SignalStatus:
    """Send a signal to a job: a suspended one that waits for it is resumed, else it is kept."""
    queue = tx.queue(name)
    if queue is None:
        return "not_found"
    promote(tx, queue)
    expire(tx, queue)
    job = tx.job(queue, id)
    if job is None or job.expired(tx.now):
        return "not_found"
    if job.ended:
        return "finished"
    row = ensure_generation(tx, queue, job)
    wait = row.wait if job.place == SUSPENDED else None
    if wait is not None and signal in wait.signals:
        tx.emit("signalled", queue, id, job.attempts)
        write_checkpoint(tx, queue, job, wait.checkpoint, "signal", signal_value(signal, value))
        resume(tx, queue, job, row)
        return "delivered"
    if tx.one("signal_count", job.n)[0] >= MAX_SIGNALS:
        return "full"
    tx.emit("signalled", queue, id, job.attempts)
    tx.run("signal_add", job.n, signal, value)
    return "kept"


def extend(
    tx: Transaction, name: str, id: str, generation: str, dependencies: Sequence[JobRef], first: int, final: bool
) -> Extended:
    """Add dependencies to a job that is being stored, or declare that it has them all."""
    found = living(tx, name, id, generation)
    if found is None or found[1].ended:
        return Extended(0, over=True)
    queue, _, row = found
    if row is None or row.has(FINAL):
        return Extended(0 if row is None else row.total)
    promote(tx, queue)
    job = tx.job(queue, id)
    assert job is not None
    row.extended_at = tx.now
    row.open += add_dependencies(tx, job.n, first, dependencies)
    row.total = row.needs = max(row.total, first + len(dependencies))
    recount(tx, row)
    if final:
        row.set(FINAL)
        row.extended_at = None
        evaluate(tx, queue, job, row)
        apply_effects(tx)
    return Extended(row.total)


def relay(tx: Transaction, families: Sequence[str], limit: int) -> Relayed:
    """Apply messages of the outboxes of families, the oldest first."""
    applied = _abandon(tx, families)
    while applied < limit:
        found = _first(tx, families)
        if found is None:
            break
        n, data = found
        message = _decode(data)
        if isinstance(message, Effect):
            tx.run("outbox_drop", n)
            tx.effects.append(message)
            apply_effects(tx)
            applied += 1
            continue
        steps, done = _cascade(tx, message, limit - applied)
        applied += steps
        if done:
            tx.run("outbox_drop", n)
        else:
            tx.run("outbox_change", _encode(message), n)
    return Relayed(applied, _first(tx, families) is not None)


def is_needed(tx: Transaction, families: Sequence[str]) -> bool:
    """Return whether there is a message, or a flow whose producer is silent."""
    late = tx.one("abandoned", tx.now - ABANDONED_MS, tx.namespace, 1) is not None
    return late or _first(tx, families) is not None


def _first(tx: Transaction, families: Sequence[str]) -> Any:
    found = [row for family in families if (row := tx.one("outbox_first", tx.namespace, family)) is not None]
    return min(found, default=None)


def _abandon(tx: Transaction, families: Sequence[str]) -> int:
    """Fail the open flows whose producers were silent for too long."""
    count = 0
    for name, id in tx.all("abandoned", tx.now - ABANDONED_MS, tx.namespace, ABANDONED_AT_ONCE):
        queue = tx.queue(name)
        if queue is None or family_of(name) not in families:
            continue
        count += 1
        promote(tx, queue)
        job = tx.job(queue, id)
        row = None if job is None else generation_of(tx, queue, job)
        if job is not None and row is not None and job.place == SUSPENDED and not row.has(FINAL):
            row.extended_at, row.dirty = None, True
            finish(tx, queue, job, Bucket.FAILED, "", UNMET_MS, error=ABANDONED)
            apply_effects(tx)
    return count


_NEXT = {"cancel": "dependency_next_open", "plan": "dependency_next_revived", "run": "dependency_next_culprit"}


def _cascade(tx: Transaction, message: Cascade, limit: int) -> tuple[int, bool]:
    """Cancel or revive some children of a flow; return how many were looked at, and whether all were."""
    steps = 0
    while True:
        found = living(tx, message.flow.queue, message.flow.id, message.flow.generation)
        if found is None:
            return steps, True
        queue, flow, row = found
        if row is None or row.opening != message.opening or flow.ended == message.revive:
            return steps, True
        statement, after = _next_statement(message, row)
        next_row = tx.one(statement, flow.n, after)
        if next_row is None:
            break
        if steps == limit:
            return steps, False
        steps += 1
        message.after = next_row[0]
        entry = tx.one("dependency_get", flow.n, message.after)
        if message.revive:
            _revive_child(tx, message, queue, flow, row, entry)
        else:
            _drop_child(tx, message, flow, entry)
        apply_effects(tx)
    if message.revive:
        row.set(REVIVING, False)
        evaluate(tx, queue, flow, row)
        apply_effects(tx)
    return steps, True


def _next_statement(message: Cascade, row: GenerationRow) -> tuple[str, int]:
    if not message.revive:
        return _NEXT["cancel"], message.after if row.has(PLAN) else max(message.after, row.needs - 1)
    if row.has(PLAN):
        return "dependency_next_dropped" if message.dropped else _NEXT["plan"], message.after
    return _NEXT["run"], message.after


def _drop_child(tx: Transaction, message: Cascade, flow: JobRow, entry: Any) -> None:
    """Cancel a child whose flow has ended, unless another made it."""
    queue = tx.queue(entry[1])
    if queue is None:
        return
    child = tx.job(queue, entry[2])
    row = None if child is None else generation_of(tx, queue, child)
    if child is None or child.ended or row is None or row.parent != message.flow:
        return
    promote(tx, queue)
    child = tx.job(queue, entry[2])
    assert child is not None
    error = dropped_error(JobRef(message.flow.queue, message.flow.id), STATES[flow.place].value)
    cancel_job(tx, queue, child, message.mode, UNMET_MS, error=error, end=End.DROPPED)


def _revive_child(
    tx: Transaction, message: Cascade, queue: QueueRow, flow: JobRow, row: GenerationRow, entry: Any
) -> None:
    """Revive a child of a revived flow; one that is gone counts as failed again."""
    number, name, id, ended, bits, _, _, culprit, _ = entry
    if culprit:
        tx.run("dependency_culprit", 0, flow.n, number)
    ref = JobRef(name, id)
    notice = notice_of(message.flow.queue, message.flow.id, message.flow.generation, number, bits)
    of = tx.queue(name)
    child = tx.job(of, id) if of else None
    if of is None or child is None or child.expired(tx.now):
        if culprit:
            close_dependency(tx, queue, flow, row, Effect(notice, ref, End.FAILED))
        return
    promote(tx, of)
    child = tx.job(of, id)
    assert child is not None
    if not child.ended or child.place == COMPLETED:
        if ended is not None:
            open_dependency(tx, row, entry)
            row.waiting += row.awaits(number)
        if not child.ended:
            add_notices(tx, of, child.n, [notice])
        else:
            close_dependency(tx, queue, flow, row, Effect(notice, ref, End.COMPLETED, child.result))
        return
    add_notices(tx, of, child.n, [notice])
    if not revive_one(tx, of, id) and culprit:
        mine = generation_of(tx, of, child)
        end = (None if mine is None else mine.end) or End.FAILED
        close_dependency(tx, queue, flow, row, Effect(notice, ref, end, None, child.error))
