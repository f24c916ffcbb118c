"""The verbs of histories of the Redis storage: the protocol `Recording`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from penstock.aio import first_of
from penstock.model.history import (
    HistoryEntry,
    HistoryName,
    HistoryPage,
    Report,
    Reported,
    attempt_data,
    line_data,
)
from penstock.storage.base import MAX_BATCH, MAX_BYTES
from penstock.storage.redis.chunks import by_queue
from penstock.storage.redis.encoding import Blobs, fence, pack, text
from penstock.storage.redis.flow_codec import encode_checkpoint, read_stored
from penstock.storage.redis.notifier import Notifier
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["RedisRecording"]

#: After an id in `waits`: readers of its histories; `_base.lua` has the same.
READER = "\0r"

#: After how many seconds a reader of a history looks by itself: entries may have come just before it asked for notices.
LOOK_FIRST, LOOK_EVERY = 0.03, 1.0


class RedisRecording:
    """The part of `RedisStorage` that keeps histories; see `penstock.storage.recording` for each verb."""

    _calls: ScriptCalls
    _notifier: Notifier

    async def report(self, reports: Sequence[Report]) -> list[Reported]:
        """Store progress, log lines and parts of runs, fenced by their tokens."""
        answers = [Reported(False)] * len(reports)
        for queue, indexes in by_queue(reports):
            at = 0
            while at < len(indexes):
                args, count = _encode([reports[i] for i in indexes[at:]])
                codes: list[Any] = await self._calls.run("report", queue, *args)
                for i, code in zip(indexes[at : at + count], codes, strict=False):
                    answers[i] = _reported(reports[i], code)
                at += len(codes)
        return answers

    async def read(
        self, queue: str, id: str, history: HistoryName, after: int = 0, limit: int = 1000
    ) -> HistoryPage | None:
        """Return the entries of a history with higher numbers than `after`; None if there is no such job."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        answer = await self._calls.run("read", queue, id, history, after, limit)
        if answer is None:
            return None
        more, *flat = answer
        width, read = (7, _attempt) if history == "attempts" else (4, _entry)
        return HistoryPage([read(flat[at : at + width]) for at in range(0, len(flat), width)], bool(more))

    async def wait_history(self, queue: str, id: str, history: HistoryName, after: int, timeout: float) -> bool:
        """Sleep until a history may have entries after this number or the job may have ended."""
        loop, ends = asyncio.get_running_loop(), self._notifier.ends
        deadline, look = loop.time() + timeout, LOOK_FIRST
        while True:
            page = await self.read(queue, id, history, after, 1)
            if page is None or page.entries:
                return True
            left = deadline - loop.time()
            if left <= 0:
                return False
            hints: list[bool] = []

            async def wait(name: str, seconds: float, hints: list[bool] = hints) -> None:
                hints.append(bool(await ends.wait_done(queue, name, seconds)))

            pause, look = min(left, look), LOOK_EVERY
            await first_of(wait(id, pause), wait(id + READER, pause))
            if any(hints):
                return True


def _encode(reports: Sequence[Report]) -> tuple[list[Any], int]:
    """Encode reports for `report.lua`, as many as fit into one call; return the arguments and the number."""
    blobs, encoded, room = Blobs(), list[Any](), MAX_BYTES
    for each in reports[:MAX_BATCH]:
        if room <= 0:
            break
        progress = 0 if each.progress is None else blobs.add(each.progress) + 1
        lines = [[max(line.age, 0), blobs.add(line_data(line))] for line in each.lines]
        parts = [blobs.add(part) for part in each.parts]
        encoded.append([each.id, fence(each.token), progress, each.first, lines, each.first_part, parts])
        if each.checkpoints:
            encoded[-1].append([encode_checkpoint(new, blobs) for new in each.checkpoints])
        room -= len(each.progress or b"") + sum(len(line.text) for line in each.lines) + sum(map(len, each.parts))
        room -= sum(len(new.value) for new in each.checkpoints)
    return [pack(encoded), *blobs.all], len(encoded)


def _reported(given: Report, code: Any) -> Reported:
    """Read the answer to a report: a number, or the stored checkpoints."""
    if not isinstance(code, list):
        return Reported(code == 1)
    rows = cast("list[Any]", code)
    return Reported(True, tuple(read_stored(new, row) for new, row in zip(given.checkpoints, rows, strict=True)))


def _attempt(fields: Sequence[Any]) -> HistoryEntry:
    n, at, attempt, outcome, begun, worker, error = fields
    return HistoryEntry(n, at, attempt, attempt_data(text(outcome), begun, text(worker), error))  # type: ignore[arg-type]


def _entry(fields: Sequence[Any]) -> HistoryEntry:
    return HistoryEntry(*fields)
