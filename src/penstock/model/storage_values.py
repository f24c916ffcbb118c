"""Answers of a storage that are about jobs and workers, not about claims."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.model.job import Snapshot, State

__all__ = ["CancelAnswer", "EndNotice", "Page", "Reaped", "WorkerRecord"]


class EndNotice(msgspec.Struct, frozen=True, gc=False):
    """Notice of a finished job for the clients that wait for it: its state, and its result or error."""

    id: str
    state: State
    result: bytes | None = None
    error: bytes | None = None


class Reaped(msgspec.Struct, frozen=True):
    """A job taken back from a worker whose lease had expired; `attempt` is 0 if it is not known."""

    queue: str
    id: str
    state: State
    worker: str
    attempt: int = 0


class CancelAnswer(msgspec.Struct, frozen=True):
    """The answer to the cancel of one id; `running` means that a run of this id goes on.

    `already` means that the job was cancelled, or its cancel requested, before this call.
    """

    status: Literal["cancelled", "running", "cancel_requested", "completed", "failed", "not_found"]
    running: bool = False
    already: bool = False


class Page(msgspec.Struct, frozen=True):
    """A page of jobs; `cursor` leads to the next one, None at the end."""

    jobs: list[Snapshot]
    cursor: str | None = None


class WorkerRecord(msgspec.Struct, frozen=True):
    """Record of a live worker: its id, when it sent its last heartbeat, when that expires, and the heartbeat."""

    id: str
    seen: int
    until: int
    info: bytes = b""
