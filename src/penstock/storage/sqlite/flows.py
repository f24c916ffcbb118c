"""Notices and what follows from them: dependencies are closed and opened again, jobs end, are resumed or suspended."""

from __future__ import annotations

from typing import Any

from penstock.model.flow import (
    MAX_EFFECTS,
    UNMET_MS,
    End,
    FlowPart,
    GenerationRef,
    JobRef,
    Plan,
    end_of_unmet,
    fatal_end,
    flow_error,
    is_met,
    plain_generation,
    unmet_error,
)
from penstock.model.job import NewJob, State
from penstock.storage.base import Put, PutStatus
from penstock.storage.sqlite.finish import finish
from penstock.storage.sqlite.flow_rows import (
    BEGUN,
    DURABLE,
    FINAL,
    PLAN,
    REVIVING,
    Cascade,
    Effect,
    GenerationRow,
    add_generation,
    add_message,
    add_notices,
    generation_of,
    new_generation,
    notice_bits,
    notices_of,
)
from penstock.storage.sqlite.ordering import promote, resume, save_with_hold, update_turn
from penstock.storage.sqlite.rows import COMPLETED, FOREVER, SUSPENDED, Bucket, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = [
    "add_dependencies",
    "apply_effects",
    "begin_flow",
    "close_dependency",
    "evaluate",
    "is_suspended",
    "join",
    "living",
    "open_dependency",
    "recount",
    "refuse_child",
    "reopen",
    "revive_children",
    "suspend_again",
    "verdict",
]

#: The harm of a dependency that makes a plan fail, makes it cancelled, or is not met.
FATAL, HARMFUL, UNMET = 1, 2, 3
_HARM = {"failed": FATAL, "cancelled": HARMFUL}


def living(
    tx: Transaction, name: str, id: str, generation: str
) -> tuple[QueueRow, JobRow, GenerationRow | None] | None:
    """Return a job with its queue and its part in flows, if it exists in this generation."""
    queue = tx.queue(name)
    job = tx.job(queue, id) if queue else None
    if queue is None or job is None or job.expired(tx.now):
        return None
    row = generation_of(tx, queue, job)
    mark = plain_generation(job.created) if row is None else row.generation
    return (queue, job, row) if mark == generation else None


# put -----------------------------------------------------------------------------------------------


def is_suspended(part: FlowPart | None) -> bool:
    """Return whether a new job with this part is suspended at first."""
    return part is not None and bool(part.dependencies or part.plan or part.open)


def refuse_child(tx: Transaction, new: NewJob) -> Put | None:
    """Return the answer to a put that its parent does not wait for, else None."""
    if new.flow is None or new.flow.parent is None:
        return None
    ref = new.flow.parent
    found = living(tx, ref.queue, ref.id, ref.generation)
    if found is None or found[1].ended:
        return Put(PutStatus.DUPLICATE, State.CANCELLED)
    for notice in new.flow.notices:
        if (notice.queue, notice.id, notice.generation) == (ref.queue, ref.id, ref.generation):
            row = tx.one("dependency_get", found[1].n, notice.number)
            if row is None or row[3] is not None:
                return Put(PutStatus.DUPLICATE, _STATES.get(None if row is None else row[3], State.CANCELLED))
            break
    return None


_STATES: dict[str | None, State] = {End.COMPLETED: State.COMPLETED, End.FAILED: State.FAILED}


def begin_flow(tx: Transaction, queue: QueueRow, id: str, part: FlowPart, twin: int = 0) -> None:
    """Store the part of a new job in flows; a plan without dependencies ends at once."""
    [n] = tx.one("flow_row", queue.k, id, twin)
    mark = part.generation or plain_generation(tx.now)
    row = new_generation(n, queue, mark, part.parent, part.plan, part.binds)
    row.set(FINAL, not part.open)
    row.extended_at = tx.now if part.open else None
    row.needs = row.total = row.open = row.waiting = len(part.dependencies)
    add_generation(tx, queue, row)
    add_dependencies(tx, n, 0, part.dependencies)
    add_notices(tx, queue, n, part.notices)
    row.dirty = False
    if is_suspended(part):
        tx.run("flow_suspended", n)
        if not part.dependencies:
            job = tx.job(queue, id)
            assert job is not None
            evaluate(tx, queue, job, row)


def add_dependencies(tx: Transaction, job: int, first: int, refs: Any) -> int:
    """Store dependencies from a number on, and return how many are new."""
    return sum(tx.run("dependency_add", job, number, ref.queue, ref.id) for number, ref in enumerate(refs, first))


def join(tx: Transaction, queue: QueueRow, new: NewJob, answer: Put) -> None:
    """Give the notices of a put whose id was taken to the job that it is about."""
    if new.flow is None or answer.refused or answer.status not in _JOINED:
        return
    job = tx.job(queue, new.id, twin=1) if answer.state is State.BLOCKED else tx.job(queue, new.id)
    if job is None or (job.ended and answer.status is PutStatus.COMPLETED):
        source = JobRef(queue.name, new.id)
        result = None if job is None else job.result
        tx.effects += [Effect(notice, source, End.COMPLETED, result) for notice in new.flow.notices]
    else:
        add_notices(tx, queue, job.n, new.flow.notices)


_JOINED = (PutStatus.UPDATED, PutStatus.DUPLICATE, PutStatus.COMPLETED)


# effects -------------------------------------------------------------------------------------------


def apply_effects(tx: Transaction) -> None:
    """Apply effects one after the other, those that they cause at the end; store the rest in the outbox."""
    applied = 0
    while tx.effects and applied < MAX_EFFECTS:
        _apply(tx, tx.effects.pop(0))
        applied += 1
    for effect in tx.effects:
        add_message(tx, effect.source.queue, effect)
    tx.effects.clear()


def _apply(tx: Transaction, effect: Effect) -> None:
    notice = effect.notice
    queue = tx.queue(notice.queue)
    if queue is None or not queue.flows or living(tx, notice.queue, notice.id, notice.generation) is None:
        return
    promote(tx, queue)
    found = living(tx, notice.queue, notice.id, notice.generation)
    if found is None or found[2] is None:
        return
    if effect.end is None:
        _open_again(tx, queue, found[1], found[2], notice.number)
    else:
        close_dependency(tx, queue, found[1], found[2], effect)


def close_dependency(tx: Transaction, queue: QueueRow, job: JobRow, row: GenerationRow, effect: Effect) -> None:
    """Close a dependency of a job, and do what follows from it."""
    notice, end = effect.notice, effect.end
    found = tx.one("dependency_get", job.n, notice.number)
    if found is None or found[3] is not None or end is None:
        return
    row.closed += 1
    row.count_end(end, 1)
    fatal = fatal_end(notice, end) if row.has(PLAN) else None
    met = is_met(notice.on, end)
    harm = None if met and fatal is None else UNMET if fatal is None else _HARM[fatal]
    value = effect.result if end is End.COMPLETED else effect.error
    kept = value if notice.wants or fatal or not met else None
    harm = None if row.has(PLAN) and fatal is None else harm
    tx.run("dependency_close", end.value, notice_bits(notice), harm, row.closed, kept, job.n, notice.number)
    if job.place == SUSPENDED:
        row.waiting -= row.awaits(notice.number)
        evaluate(tx, queue, job, row, notice.number)


def evaluate(tx: Transaction, queue: QueueRow, job: JobRow, row: GenerationRow, number: int | None = None) -> None:
    """End or resume a suspended job if its dependencies ask for it; `number` is the one that was closed."""
    if job.place != SUSPENDED or row.has(REVIVING):
        return
    if row.has(PLAN):
        plan = row.plan
        assert plan is not None
        _evaluate_plan(tx, queue, job, row, plan)
    elif not row.has(BEGUN):
        unmet = verdict(tx, row)
        if unmet is not None:
            _end_unmet(tx, queue, job, unmet)
        elif row.has(FINAL) and row.waiting == 0:
            resume(tx, queue, job, row)
    elif number is not None and row.awaits(number) and row.waiting == 0:
        resume(tx, queue, job, row)


def verdict(tx: Transaction, row: GenerationRow) -> Any:
    """Return the row of the dependency that ends a job without a run; None if it may still run.

    One that makes it fail ends it at once. One that makes it superfluous ends it when all others have ended, so that
    the end does not depend on their order.
    """
    if row.has(PLAN):
        return None
    unmet = tx.all("dependencies_harm", row.job, row.needs)
    harmful = [each for each in unmet if end_of_unmet(End(each[3])) is End.UPSTREAM]
    if harmful:
        return harmful[0]
    if not unmet or not row.has(FINAL) or tx.one("dependencies_open", row.job, 0, row.needs)[0]:
        return None
    return unmet[0]


def _end_unmet(tx: Transaction, queue: QueueRow, job: JobRow, unmet: Any) -> None:
    """End a job without a run, because of a dependency that is not met."""
    _, source, id, ended, _, _, _, _, value = unmet
    end = End(ended)
    error = unmet_error(JobRef(source, id), end, None if end is End.COMPLETED else value)
    finish(tx, queue, job, Bucket.CANCELLED, "", UNMET_MS, error=error, end=end_of_unmet(end))


def _evaluate_plan(tx: Transaction, queue: QueueRow, job: JobRow, row: GenerationRow, plan: Plan) -> None:
    waits = row.open > 0 or not row.has(FINAL)
    if waits and not plan.fail_fast:
        return
    harm = tx.one("dependencies_harm", row.job, 1 << 60)
    failed = harm is not None and harm[5] == FATAL
    if waits and not failed:
        return
    if harm is not None:
        error = flow_error(JobRef(harm[1], harm[2]), harm[8])
        bucket = Bucket.FAILED if failed else Bucket.CANCELLED
        finish(tx, queue, job, bucket, "", plan.failed_ttl, error=error)
        return
    found = None if plan.result is None else tx.one("dependency_get", row.job, plan.result)
    result = plan.default if found is None or found[8] is None else found[8]
    finish(tx, queue, job, Bucket.COMPLETED, "", plan.ttl, result=result)


# opening again -------------------------------------------------------------------------------------


def reopen(tx: Transaction, queue: QueueRow, job: JobRow) -> None:
    """Open again what the end of a job had closed."""
    source = JobRef(queue.name, job.id)
    tx.effects += [Effect(notice, source, None) for notice in notices_of(tx, job.n)]


def open_dependency(tx: Transaction, row: GenerationRow, found: Any) -> None:
    """Open a closed dependency."""
    tx.run("dependency_open", row.job, found[0])
    row.count_end(End(found[3]), -1)


def _open_again(tx: Transaction, queue: QueueRow, job: JobRow, row: GenerationRow, number: int) -> None:
    """Open a dependency of a job again, because the job that it waits for was revived."""
    found = tx.one("dependency_get", job.n, number)
    if found is None or found[3] is None or job.place == COMPLETED:
        return
    if row.has(PLAN):
        open_dependency(tx, row, found)
        row.waiting += 1
        if job.ended:
            suspend_again(tx, queue, job, row)
            plan = row.plan
            if plan is not None and plan.fail_fast:
                revive_children(tx, queue, job, row, dropped=True)
    elif number >= row.needs:
        awaited = job.place == SUSPENDED and row.has(BEGUN) and row.awaits(number)
        if awaited or (job.ended and found[7]):
            open_dependency(tx, row, found)
            row.waiting += awaited
    elif job.ended:
        if not row.has(DURABLE):
            open_dependency(tx, row, found)
            if row.end in (End.UPSTREAM, End.SKIPPED) and verdict(tx, row) is None:
                suspend_again(tx, queue, job, row)
    elif not row.has(BEGUN) and job.waiting:
        open_dependency(tx, row, found)
        if job.place == SUSPENDED:
            row.waiting += 1
        else:
            suspend_again(tx, queue, job, row)


def recount(tx: Transaction, row: GenerationRow) -> None:
    """Count the open dependencies that a job waits for."""
    row.waiting = tx.one("dependencies_open", row.job, *row.numbers)[0]
    row.dirty = True


def suspend_again(tx: Transaction, queue: QueueRow, job: JobRow, row: GenerationRow) -> None:
    """Suspend a job that never began, or a plan, again: it was ended or released by its dependencies."""
    ended, held = job.ended, job.holds_group
    clear_end(job)
    job.place, job.until, job.retried = SUSPENDED, FOREVER, 0
    row.ended = None
    row.opening += 1
    recount(tx, row)
    tx.emit("suspended", queue, job.id, job.attempts)
    save_with_hold(tx, queue, job, held)
    if ended:
        reopen(tx, queue, job)
    else:
        update_turn(tx, queue, job.grp)


def clear_end(job: JobRow) -> None:
    """Clear the columns of the end of a job."""
    job.expires = job.number = job.finished = job.error = job.result = job.error_key = None
    job.token = job.worker = job.flags = None


def revive_children(tx: Transaction, queue: QueueRow, job: JobRow, row: GenerationRow, dropped: bool = False) -> None:
    """Put a message into the outbox that revives the children of a flow."""
    row.set(REVIVING, row.has(PLAN))
    ref = GenerationRef(queue.name, job.id, row.generation)
    add_message(tx, queue.name, Cascade(ref, row.opening, revive=True, dropped=dropped))
