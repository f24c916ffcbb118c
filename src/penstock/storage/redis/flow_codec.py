"""Encoding of parts of jobs in flows for the scripts, and decoding of what they give. `_flows.lua` has the layout."""

from __future__ import annotations

from typing import Any

from penstock.model.flow import (
    Checkpoint,
    CheckpointKind,
    ClaimFlow,
    DependencyEntry,
    End,
    FlowPart,
    FlowSnapshot,
    GenerationRef,
    JobRef,
    NewCheckpoint,
    Notice,
)
from penstock.model.suspend import Suspend
from penstock.storage.redis.blobs import Blobs, text
from penstock.storage.redis.keys import queue_ref

__all__ = [
    "encode_checkpoint",
    "encode_part",
    "encode_refs",
    "encode_suspend",
    "read_checkpoint",
    "read_claim_flow",
    "read_dependency",
    "read_flow_snapshot",
    "read_stored",
]

#: The kinds of checkpoints by their numbers, from 1 on; `_base.lua` has those that the scripts know.
KINDS: tuple[CheckpointKind, ...] = ("step", "sleep", "signal", "call", "cursor")
#: How a dependency ended, by the letters of `deps`.
ENDS = dict(zip("cfxusd", End, strict=True))
_CONDITIONS = ("completed", "failed", "ended")


def encode_refs(refs: tuple[JobRef, ...] | list[JobRef]) -> list[list[str]]:
    """Encode jobs by the references of their queues."""
    return [[queue_ref(ref.queue), ref.id] for ref in refs]


def _notice(notice: Notice) -> list[Any]:
    mode = _CONDITIONS.index(notice.on) | notice.wants << 2 | notice.handled << 3 | notice.required << 4
    return [queue_ref(notice.queue), notice.id, notice.generation, notice.number, mode]


def encode_part(part: FlowPart, blobs: Blobs) -> list[Any]:
    """Encode the part of a new job for `read_flow` in `_transitions.lua`."""
    parent, plan = part.parent, part.plan
    return [
        part.generation,
        encode_refs(part.dependencies),
        [value for notice in part.notices for value in _notice(notice)],
        blobs.add(part.binds),
        False if parent is None else [queue_ref(parent.queue), parent.id, parent.generation],
        False
        if plan is None
        else [
            -1 if plan.result is None else plan.result,
            plan.fail_fast,
            -1 if plan.ttl is None else plan.ttl,
            -1 if plan.failed_ttl is None else plan.failed_ttl,
            blobs.add(plan.default),
        ],
        part.open,
    ]


def encode_checkpoint(new: NewCheckpoint, blobs: Blobs) -> list[Any]:
    """Encode a checkpoint for the scripts."""
    return [new.name, KINDS.index(new.kind) + 1, blobs.add(new.value), list(new.signals)]


def encode_suspend(wish: Suspend, puts: list[Any] | bool, blobs: Blobs) -> list[Any]:
    """Encode a suspension for `settle.lua`; `puts` are its encoded children."""
    signal = wish.signal
    return [
        "p", [encode_checkpoint(each, blobs) for each in wish.checkpoints], puts, wish.first, wish.count,
        False if signal is None else [signal.checkpoint, list(signal.signals)],
        False if wish.at is None else wish.at, False if wish.delay is None else wish.delay,
        False if wish.sleep is None else wish.sleep,
    ]  # fmt: skip


def _kind(number: int) -> CheckpointKind:
    return KINDS[number - 1] if 0 < number <= len(KINDS) else "step"


def read_checkpoint(row: Any) -> Checkpoint:
    """Read a checkpoint of a journal."""
    n, name, kind, value = row
    return Checkpoint(n, text(name), _kind(kind), value)


def read_stored(new: NewCheckpoint, row: Any) -> Checkpoint | None:
    """Read the checkpoint that is stored under the name of a new one, None for a signal that has not come."""
    return None if row == 0 else Checkpoint(row[0], new.name, _kind(row[1]), row[2])


def read_dependency(row: Any) -> DependencyEntry:
    """Read a dependency."""
    number, queue, id, letter, value = row
    return DependencyEntry(number, text(queue), text(id), ENDS.get(letter.decode()), value)


def _parent(row: Any) -> GenerationRef | None:
    return None if row is None else GenerationRef(*(text(each) for each in row))


def read_claim_flow(row: Any) -> ClaimFlow:
    """Read the part of a claim from `F.claim` in `_suspended.lua`."""
    generation, at, parent, binds, needs, total, fresh, checkpoints, dependencies, whole, cancel = row
    return ClaimFlow(
        text(generation), int(at), _parent(parent), binds, needs, total, fresh,
        tuple(map(read_checkpoint, checkpoints)), tuple(map(read_dependency, dependencies)), bool(whole),
        "signal" if cancel else None,
    )  # fmt: skip


def read_flow_snapshot(row: Any) -> FlowSnapshot:
    """Read the part of a snapshot from `F.shown` in `_suspended.lua`."""
    generation, parent, plan, final, needs, count, ends, waits_for, wakes_at, signals, unread = row
    return FlowSnapshot(
        generation=text(generation), parent=_parent(parent), plan=bool(plan), final=bool(final), needs=needs,
        open=count,
        ends={end: number for end, number in zip(End, ends, strict=False) if number},
        waits_for=tuple(JobRef(text(queue), text(id)) for queue, id in waits_for),
        wakes_at=None if wakes_at is None else int(wakes_at), signals=tuple(text(name) for name in signals),
        unread=unread,
    )  # fmt: skip
