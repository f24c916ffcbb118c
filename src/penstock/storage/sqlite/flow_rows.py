"""The rows of flows: the part of a job in flows, its notices, and the effects that a transaction has still to apply."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.model.flow import Condition, End, GenerationRef, JobRef, Notice, Plan, SignalWait, plain_generation
from penstock.model.ids import family_of
from penstock.storage.base import CancelMode
from penstock.storage.sqlite.rows import RUNNING, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = [
    "BEGUN",
    "CANCELLED_RUN",
    "DURABLE",
    "FINAL",
    "PLAN",
    "REVIVING",
    "Cascade",
    "Effect",
    "GenerationRow",
    "add_message",
    "add_notices",
    "ensure_generation",
    "generation_of",
    "generations_of",
    "is_durable",
    "note_end",
    "note_gone",
    "notice_bits",
    "notice_of",
    "notices_of",
    "save_generation",
]

#: The bits of `generations.flags`: it is a plan; nothing is added to it any more; it was claimed; it was suspended by a
#: run or has a checkpoint; a message revives its children; its next run is to know that it was cancelled.
PLAN, FINAL, BEGUN, DURABLE, REVIVING, CANCELLED_RUN = 1, 2, 4, 8, 16, 32

_CONDITIONS: tuple[Condition, ...] = ("completed", "failed", "ended")
_ENDS = tuple(End)
_encode = msgspec.msgpack.Encoder().encode
_decode_parent = msgspec.msgpack.Decoder(tuple[str, str, str]).decode
_decode_wait = msgspec.msgpack.Decoder(tuple[str, tuple[str, ...]]).decode
_decode_counts = msgspec.msgpack.Decoder(list[int]).decode
_decode_plan = msgspec.msgpack.Decoder(Plan).decode


class Effect(msgspec.Struct, frozen=True, tag="effect", array_like=True):
    """A notice on its way: how a job ended, or (None) that it was revived."""

    notice: Notice
    source: JobRef
    end: End | None
    result: bytes | None = None
    error: bytes | None = None


class Cascade(msgspec.Struct, tag="cascade", array_like=True):
    """A message that cancels or revives the children of a flow with numbers after `after`.

    `dropped` means that only those are revived that were cancelled with the flow.
    """

    flow: GenerationRef
    opening: int
    revive: bool = False
    mode: CancelMode = "refuse"
    dropped: bool = False
    after: int = -1


class GenerationRow(msgspec.Struct):
    """A row of `generations`, in the order of its columns; changed in memory and written once, before the commit."""

    job: int
    queue: int
    generation: str
    parent_data: bytes | None = None
    flags: int = FINAL
    extended_at: int | None = None
    fresh: int = 0
    needs: int = 0
    total: int = 0
    adopted: int = 0
    closed: int = 0
    opening: int = 0
    waiting: int = 0
    first: int = 0
    count: int = 0
    wait_data: bytes | None = None
    cancel_ttl: int | None = None
    ended: str | None = None
    open: int = 0
    ended_data: bytes | None = None
    plan_data: bytes | None = None
    binds: bytes | None = None
    dirty: bool = False

    @property
    def parent(self) -> GenerationRef | None:
        """The flow that it belongs to."""
        return None if self.parent_data is None else GenerationRef(*_decode_parent(self.parent_data))

    @property
    def plan(self) -> Plan | None:
        """How it ends, if it is a plan."""
        return None if self.plan_data is None else _decode_plan(self.plan_data)

    @property
    def wait(self) -> SignalWait | None:
        """The signals that it waits for."""
        return None if self.wait_data is None else SignalWait(*_decode_wait(self.wait_data))

    @property
    def end(self) -> End | None:
        """How it ended."""
        return None if self.ended is None else End(self.ended)

    @property
    def ends(self) -> list[int]:
        """How many dependencies ended in each way, in the order of `End`."""
        return [0] * len(_ENDS) if self.ended_data is None else _decode_counts(self.ended_data)

    def has(self, flag: int) -> bool:
        """Return whether a flag is set."""
        return bool(self.flags & flag)

    def set(self, flag: int, value: bool = True) -> None:
        """Set or clear a flag."""
        self.flags = self.flags | flag if value else self.flags & ~flag
        self.dirty = True

    def set_wait(self, wait: SignalWait | None) -> None:
        """Set the signals that it waits for."""
        self.wait_data = None if wait is None else _encode((wait.checkpoint, wait.signals))
        self.dirty = True

    def count_end(self, end: End, more: int) -> None:
        """Count a dependency that was closed (1) or opened again (-1)."""
        ends = self.ends
        ends[_ENDS.index(end)] += more
        self.open -= more
        self.ended_data = _encode(ends)
        self.dirty = True

    @property
    def numbers(self) -> tuple[int, int]:
        """The first number of the dependencies that it waits for now, and the one after the last."""
        if self.has(PLAN):
            return 0, 1 << 60
        return (self.first, self.first + self.count) if self.has(BEGUN) else (0, self.needs)

    def awaits(self, number: int) -> bool:
        """Return whether it waits for this dependency while it is suspended."""
        low, high = self.numbers
        return low <= number < high

    def values(self) -> tuple[object, ...]:
        """Return the parameters of `generation_save`."""
        return (
            self.flags, self.extended_at, self.fresh, self.needs, self.total, self.adopted, self.closed, self.opening,
            self.waiting, self.first, self.count, self.wait_data, self.cancel_ttl, self.ended, self.open,
            self.ended_data, self.job,
        )  # fmt: skip


def new_generation(
    job: int, queue: QueueRow, generation: str, parent: GenerationRef | None, plan: Plan | None, binds: bytes
) -> GenerationRow:
    """Return the part of a new job in flows."""
    return GenerationRow(
        job, queue.k, generation,
        None if parent is None else _encode((parent.queue, parent.id, parent.generation)),
        FINAL | (PLAN if plan is not None else 0),
        plan_data=None if plan is None else _encode(plan), binds=binds or None,
    )  # fmt: skip


def add_generation(tx: Transaction, queue: QueueRow, row: GenerationRow) -> GenerationRow:
    """Store the part of a job in flows."""
    tx.run(
        "generation_add", row.job, row.queue, row.generation, row.parent_data, row.flags, row.extended_at, row.fresh,
        row.needs, row.total, row.adopted, row.closed, row.opening, row.waiting, row.first, row.count, row.wait_data,
        row.cancel_ttl, row.ended, row.open, row.ended_data, row.plan_data, row.binds,
    )  # fmt: skip
    tx.generations[row.job] = row
    mark_flows(tx, queue)
    return row


def mark_flows(tx: Transaction, queue: QueueRow) -> None:
    """Note that a queue has rows of flows."""
    if not queue.flows:
        queue.flows = 1
        tx.run("queue_flows", queue.k)


def generation_of(tx: Transaction, queue: QueueRow, job: JobRow) -> GenerationRow | None:
    """Return the part of a job in flows, None without one."""
    return generations_of(tx, queue, [job.n]).get(job.n)


def generations_of(tx: Transaction, queue: QueueRow, jobs: Sequence[int]) -> dict[int, GenerationRow]:
    """Return the parts of jobs in flows, by the numbers of their rows."""
    if not queue.flows:
        return {}
    missing = [n for n in jobs if n not in tx.generations]
    if missing:
        found = {row[0]: GenerationRow(*row) for row in tx.run_with_list("generations_of", (), missing)}
        tx.generations.update({n: found.get(n) for n in missing})
    return {n: row for n in jobs if (row := tx.generations[n]) is not None}


def ensure_generation(tx: Transaction, queue: QueueRow, job: JobRow) -> GenerationRow:
    """Return the part of a job in flows, stored if there is none."""
    found = generation_of(tx, queue, job)
    if found is None:
        row = new_generation(job.n, queue, plain_generation(job.created), None, None, b"")
        row.set(BEGUN, job.place == RUNNING)
        found = add_generation(tx, queue, row)
    return found


def save_generation(tx: Transaction, row: GenerationRow) -> None:
    """Write a row back; the transaction does it for all before its commit."""
    if row.dirty:
        tx.run("generation_save", *row.values())
        row.dirty = False


def is_durable(tx: Transaction, queue: QueueRow, job: JobRow) -> bool:
    """Return whether the runs of a job have recorded something, so that its payload stays until it ends."""
    if not queue.flows or job.ended:
        return False
    row = generation_of(tx, queue, job)
    return row is not None and row.has(DURABLE)


# notices -------------------------------------------------------------------------------------------


def notice_bits(notice: Notice) -> int:
    """Return the condition and the marks of a notice as one integer."""
    on = _CONDITIONS.index(notice.on)
    return on | notice.wants << 2 | notice.handled << 3 | notice.required << 4


def notice_of(queue: str, id: str, generation: str, number: int, bits: int) -> Notice:
    """Return a notice from its columns."""
    on = _CONDITIONS[min(bits & 3, 2)]
    return Notice(queue, id, generation, number, on, bool(bits & 4), bool(bits & 8), bool(bits & 16))


def add_notices(tx: Transaction, queue: QueueRow, job: int, notices: Sequence[Notice]) -> None:
    """Store whom a job notifies when it ends."""
    for notice in notices:
        to = notice.queue, notice.id, notice.generation, notice.number
        tx.run("notice_add", job, *to, notice_bits(notice))
        mark_flows(tx, queue)


def notices_of(tx: Transaction, job: int) -> list[Notice]:
    """Return whom a job notifies when it ends."""
    return [notice_of(*row) for row in tx.all("notices_of", job)]


def note_gone(
    tx: Transaction, queue: QueueRow, job: JobRow, end: End = End.CANCELLED, error: bytes | None = None
) -> None:
    """Add the effects of the end of a job that has no dependencies: a successor, or a record that cannot be read."""
    if queue.flows:
        source = JobRef(queue.name, job.id)
        tx.effects += [Effect(notice, source, end, None, error) for notice in notices_of(tx, job.n)]


def note_end(
    tx: Transaction, queue: QueueRow, job: JobRow, end: End, mode: CancelMode = "refuse",
    result: bytes | None = None, error: bytes | None = None,
) -> None:  # fmt: skip
    """Add the effects of the end of a job, and the message that cancels its unfinished children."""
    source = JobRef(queue.name, job.id)
    tx.effects += [Effect(notice, source, end, result, error) for notice in notices_of(tx, job.n)]
    row = generation_of(tx, queue, job)
    if row is None:
        return
    row.ended, row.wait_data = end.value, None
    row.set(REVIVING | CANCELLED_RUN, False)
    if row.open and (row.has(PLAN) or row.total > row.needs):
        ref = GenerationRef(queue.name, job.id, row.generation)
        add_message(tx, queue.name, Cascade(ref, row.opening, mode=mode))


def add_message(tx: Transaction, queue: str, message: Effect | Cascade) -> None:
    """Put a message into the outbox of the family of the queue that caused it."""
    tx.run("outbox_add", tx.namespace, family_of(queue), tx.now, _encode(message))
