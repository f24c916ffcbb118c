"""Log lines and parts of runs on their way to the storage: gathered, bounded, and sent without delaying handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

from penstock.errors import StorageError
from penstock.host import AppHost
from penstock.model.history import (
    MAX_LINE,
    MAX_LINES,
    MAX_LOG,
    MAX_PARTS,
    MAX_STREAM,
    LogLevel,
    NewLine,
    Report,
    part_data,
)
from penstock.model.job import Claim
from penstock.model.printing import escape_controls
from penstock.model.source import source
from penstock.storage.base import MAX_BATCH

__all__ = ["LogSender", "PendingPart"]

log = logging.getLogger("penstock.worker")

#: How long (seconds) lines, and parts, are gathered before they are sent.
GATHER, GATHER_PARTS = 0.2, 0.02

#: Queue, id and token of a run.
RunKey = tuple[str, str, str]


class _RunLines:
    """Lines and parts of one run that wait to be sent; the oldest go if there are more than a job keeps."""

    __slots__ = ("first", "first_part", "lines", "part_size", "parts", "size")

    def __init__(self) -> None:
        #: The number of the first of the lines within the run.
        self.first = 1
        #: Text, level, and when (monotonic) each was logged.
        self.lines: deque[tuple[str, LogLevel, float]] = deque()
        self.size = 0
        #: The number of the first of the parts within the run, and their bytes.
        self.first_part = 1
        self.parts: deque[bytes] = deque()
        self.part_size = 0

    def add_part(self, value: bytes) -> int:
        """Add an encoded value; returns the number of its part within the run."""
        number = self.first_part + len(self.parts)
        self.parts.append(part_data(number, value))
        self.part_size += len(self.parts[-1])
        while len(self.parts) > MAX_PARTS or self.part_size > MAX_STREAM:
            self.drop_parts(1)
        return number

    def drop_parts(self, count: int) -> None:
        for _ in range(min(count, len(self.parts))):
            self.part_size -= len(self.parts.popleft())
            self.first_part += 1

    def add(self, text: str, level: LogLevel) -> None:
        self.lines.append((text[: MAX_LINE + 1], level, source.monotonic()))
        self.size += min(len(text), MAX_LINE)
        while len(self.lines) > MAX_LINES or self.size > MAX_LOG:
            self.drop(1)

    def drop(self, count: int) -> None:
        for _ in range(min(count, len(self.lines))):
            self.size -= min(len(self.lines.popleft()[0]), MAX_LINE)
            self.first += 1


class PendingPart:
    """A part under way. It may be awaited: False if the claim of its run was lost."""

    __slots__ = ("_key", "_number", "_sender")

    def __init__(self, sender: LogSender, key: RunKey, number: int) -> None:
        self._sender, self._key, self._number = sender, key, number

    def __await__(self) -> Generator[Any, None, bool]:
        sent = self._sender.wait_sent(self._key, self._number)
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sent, self._sender.loop)).__await__()


class LogSender:
    """Sends lines and parts of the runs of one worker. `add` and `emit` are for any thread, the rest for the loop."""

    def __init__(self, host: AppHost) -> None:
        self._host = host
        self.loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._runs: dict[RunKey, _RunLines] = {}
        #: How long (seconds) what waits is gathered; None if nothing waits.
        self._delay: float | None = None
        self._flushed: asyncio.Future[None] | None = None
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __bool__(self) -> bool:
        """Return whether a run has logged a line or emitted a part and has not ended."""
        return bool(self._runs)

    def add(self, claim: Claim, text: str, level: LogLevel) -> None:
        """Take a line of a run, to be sent soon."""
        with self._lock:
            self._run(claim).add(text, level)
        self._schedule(GATHER)

    def emit(self, claim: Claim, value: bytes) -> PendingPart:
        """Take an encoded part of a run, to be sent soon."""
        with self._lock:
            number = self._run(claim).add_part(value)
        self._schedule(GATHER_PARTS)
        return PendingPart(self, _key(claim), number)

    def _run(self, claim: Claim) -> _RunLines:
        run = self._runs.get(_key(claim))
        if run is None:
            run = self._runs[_key(claim)] = _RunLines()
        return run

    def _schedule(self, delay: float) -> None:
        """Have everything sent after this time at the latest."""
        with self._lock:
            if self._delay is not None and self._delay <= delay:
                return
            self._delay = delay
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the handler outlives its worker
            self.loop.call_soon_threadsafe(self._send_later)

    def _send_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed and self._delay is not None:
            self._timer = self.loop.call_later(self._delay, self._send_soon)

    def _send_soon(self) -> None:
        if self._task is not None and not self._task.done():
            self._send_later()
            return
        self._delay = None
        self._task = asyncio.create_task(self._flush(list(self._runs)), name="penstock log lines")

    async def wait_sent(self, key: RunKey, number: int) -> bool:
        """Wait until a part was sent, or could not be; False if the claim of its run was lost."""
        run = self._runs.get(key)
        if run is not None and run.first_part <= number and not self._closed:
            if self._flushed is None:
                self._flushed = self.loop.create_future()
            await self._flushed
            return key in self._runs
        return run is not None

    async def end(self, claims: Iterable[Claim]) -> None:
        """Send the last lines and parts of runs that are about to be settled."""
        keys = [key for claim in claims if (key := _key(claim)) in self._runs]
        if keys:
            await self._flush(keys)

    async def close(self) -> None:
        """Send nothing any more: every run has ended. Waits for a call under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task

    def forget(self, claims: Iterable[Claim]) -> None:
        """Drop the lines and parts of runs that are settled or lost."""
        with self._lock:
            for claim in claims:
                self._runs.pop(_key(claim), None)

    async def _flush(self, keys: Iterable[RunKey]) -> None:
        """Send what these runs have. What the storage does not take now is sent with what comes next."""
        try:
            await self._send(keys)
        finally:
            flushed, self._flushed = self._flushed, None
            if flushed is not None and not flushed.done():
                flushed.set_result(None)

    async def _send(self, keys: Iterable[RunKey]) -> None:
        async with self._sending:
            reports = self._reports(keys)
            for at in range(0, len(reports), MAX_BATCH):
                part = reports[at : at + MAX_BATCH]
                try:
                    answers = await self._host.storage.report(part)
                except StorageError as error:  # no reason to fail a run
                    log.debug("log lines were not stored: %s", escape_controls(str(error)))
                    return
                with self._lock:
                    for report, answer in zip(part, answers, strict=True):
                        self._sent(report, answer.kept)

    def _reports(self, keys: Iterable[RunKey]) -> list[Report]:
        now = source.monotonic()
        with self._lock:
            found = [
                (key, run) for key in keys if (run := self._runs.get(key)) is not None and (run.lines or run.parts)
            ]
            return [
                Report(
                    queue=key[0], id=key[1], token=key[2], first=run.first,
                    lines=tuple(NewLine(text, level, round((now - at) * 1000)) for text, level, at in run.lines),
                    parts=tuple(run.parts), first_part=run.first_part,
                )
                for key, run in found
            ]  # fmt: skip

    def _sent(self, report: Report, kept: bool) -> None:
        """Drop lines and parts that are stored; of a run that has lost its claim drop all."""
        key = report.queue, report.id, report.token
        run = self._runs.get(key)
        if run is not None and kept:
            run.drop(report.first + len(report.lines) - run.first)
            run.drop_parts(report.first_part + len(report.parts) - run.first_part)
        elif run is not None:
            del self._runs[key]


def _key(claim: Claim) -> RunKey:
    return claim.queue, claim.id, claim.token
