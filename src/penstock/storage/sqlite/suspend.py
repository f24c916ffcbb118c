"""Suspend: running → suspended, or queued at its place if the job waits for nothing; and children of plans."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.flow import FOLLOW_UPS, FlowPart, JobRef, NewCheckpoint, Notice
from penstock.model.job import NewJob, State
from penstock.storage.base import Suspend
from penstock.storage.sqlite.flow_rows import BEGUN, DURABLE, PLAN, GenerationRow, ensure_generation, generation_of
from penstock.storage.sqlite.flows import add_dependencies, living, recount
from penstock.storage.sqlite.journal import add_checkpoint
from penstock.storage.sqlite.ordering import resume, save_with_hold, update_turn
from penstock.storage.sqlite.put import put
from penstock.storage.sqlite.rows import FOREVER, SUSPENDED, JobRow, state_of
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["adopt", "suspend"]


def suspend(tx: Transaction, queue: QueueRow, job: JobRow, wish: Suspend) -> State:
    """Suspend the run of a job, and return the state of the job."""
    row = ensure_generation(tx, queue, job)
    held, worker = job.holds_group, job.worker
    row.set(BEGUN | DURABLE)
    job.attempts -= 1
    job.worker = None
    for checkpoint in wish.checkpoints:
        add_checkpoint(tx, queue, job, checkpoint)
    tx.emit("suspended", queue, job.id, job.attempts, worker)
    job.retried, job.place = 1, SUSPENDED
    row.first, row.count = wish.first, wish.count
    row.open += add_dependencies(tx, job.n, row.total, [JobRef(child.queue, child.id) for child in wish.puts])
    row.total += len(wish.puts)
    recount(tx, row)
    _set_wait(tx, queue, job, row, wish)
    save_with_hold(tx, queue, job, held)
    tx.notify_due(queue, job.until or FOREVER)
    update_turn(tx, queue, job.grp)
    put(tx, wish.puts)
    found = tx.job(queue, job.id)
    assert found is not None
    if found.place == SUSPENDED and not _has_to_wait(tx, found, row):
        resume(tx, queue, found, row)
    return state_of(found, tx.now)


def _set_wait(tx: Transaction, queue: QueueRow, job: JobRow, row: GenerationRow, wish: Suspend) -> None:
    """Set the wake time and the wait for a signal; a signal that has come is read at once."""
    wake = tx.now + wish.delay if wish.delay is not None else wish.at
    if wish.sleep is not None and wake is not None:
        stored = add_checkpoint(tx, queue, job, NewCheckpoint(wish.sleep, "sleep", str(wake).encode()))
        assert stored is not None
        wake = int(stored.value) if stored.value.isdigit() else wake
    row.set_wait(None)
    if wish.signal is not None:
        asked = NewCheckpoint(wish.signal.checkpoint, "signal", signals=wish.signal.signals)
        if add_checkpoint(tx, queue, job, asked) is None:
            row.set_wait(wish.signal)
        else:
            wake = None
    job.until = FOREVER if wake is None else wake


def _has_to_wait(tx: Transaction, job: JobRow, row: GenerationRow) -> bool:
    if row.waiting > 0 or row.wait_data is not None:
        return True
    return job.until is not None and tx.now < job.until < FOREVER


def adopt(tx: Transaction, queue: QueueRow, job: JobRow, then: Sequence[NewJob]) -> tuple[NewJob, ...]:
    """Return the follow-up jobs of a child of a plan as children of the plan, which waits for them too."""
    mine = generation_of(tx, queue, job)
    ref = None if mine is None else mine.parent
    found = None if ref is None else living(tx, ref.queue, ref.id, ref.generation)
    if ref is None or found is None:
        return tuple(then)
    _, parent, row = found
    if row is None or parent.ended or not row.has(PLAN):
        return tuple(then)
    adopted: list[NewJob] = []
    for new in then:
        if new.flow is not None:
            adopted.append(new)
            continue
        number = FOLLOW_UPS + row.adopted
        added = add_dependencies(tx, parent.n, number, [JobRef(new.queue, new.id)])
        row.open, row.waiting, row.adopted = row.open + added, row.waiting + added, row.adopted + 1
        row.dirty = True
        notice = Notice(ref.queue, ref.id, ref.generation, number, "ended")
        adopted.append(replace(new, flow=FlowPart(parent=ref, notices=(notice,))))
    return tuple(adopted)
