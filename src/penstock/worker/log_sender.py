"""The log lines of runs on their way to the storage: gathered, bounded, and sent without holding up any handler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable

from penstock.errors import StorageError
from penstock.host import AppHost
from penstock.model.history import MAX_LINE, MAX_LINES, MAX_LOG, LogLevel, NewLine, Report
from penstock.model.job import Claim
from penstock.model.printing import escape_controls
from penstock.model.source import source
from penstock.storage.base import MAX_BATCH

__all__ = ["LogSender"]

log = logging.getLogger("penstock.worker")

#: How long (seconds) lines are gathered before they are sent.
GATHER = 0.2

#: Queue, id and token of a run.
RunKey = tuple[str, str, str]


class _RunLines:
    """Lines of one run that wait to be sent; the oldest go if there are more than a log keeps."""

    __slots__ = ("first", "lines", "size")

    def __init__(self) -> None:
        #: The number of the first of the lines within the run.
        self.first = 1
        #: Text, level, and when (monotonic) each was logged.
        self.lines: deque[tuple[str, LogLevel, float]] = deque()
        self.size = 0

    def add(self, text: str, level: LogLevel) -> None:
        self.lines.append((text[: MAX_LINE + 1], level, source.monotonic()))
        self.size += min(len(text), MAX_LINE)
        while len(self.lines) > MAX_LINES or self.size > MAX_LOG:
            self.drop(1)

    def drop(self, count: int) -> None:
        for _ in range(min(count, len(self.lines))):
            self.size -= min(len(self.lines.popleft()[0]), MAX_LINE)
            self.first += 1


class LogSender:
    """Sends the lines of the runs of one worker. `add` may be called in any thread, the rest on the event loop."""

    def __init__(self, host: AppHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._runs: dict[RunKey, _RunLines] = {}
        self._scheduled = False
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __bool__(self) -> bool:
        """Return whether a run has logged a line and has not ended."""
        return bool(self._runs)

    def add(self, claim: Claim, text: str, level: LogLevel) -> None:
        """Take a line of a run, to be sent soon."""
        with self._lock:
            lines = self._runs.get(_key(claim))
            if lines is None:
                lines = self._runs[_key(claim)] = _RunLines()
            lines.add(text, level)
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # the event loop is closed: the handler outlives its worker
            self._loop.call_soon_threadsafe(self._send_later)

    def _send_later(self) -> None:
        if not self._closed:
            self._timer = self._loop.call_later(GATHER, self._send_soon)

    def _send_soon(self) -> None:
        if self._task is not None and not self._task.done():
            self._send_later()
            return
        self._scheduled = False
        self._task = asyncio.create_task(self._flush(list(self._runs)), name="penstock log lines")

    async def end(self, claims: Iterable[Claim]) -> None:
        """Send the last lines of runs that are about to be settled."""
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
        """Drop the lines of runs that are settled or lost."""
        with self._lock:
            for claim in claims:
                self._runs.pop(_key(claim), None)

    async def _flush(self, keys: Iterable[RunKey]) -> None:
        """Send the lines of these runs. Those that the storage does not take now are sent with the next ones."""
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
            found = [(key, run) for key in keys if (run := self._runs.get(key)) is not None and run.lines]
            return [
                Report(
                    queue=key[0], id=key[1], token=key[2], first=run.first,
                    lines=tuple(NewLine(text, level, round((now - at) * 1000)) for text, level, at in run.lines),
                )
                for key, run in found
            ]  # fmt: skip

    def _sent(self, report: Report, kept: bool) -> None:
        """Drop lines that are stored; of a run that has lost its claim drop all."""
        key = report.queue, report.id, report.token
        run = self._runs.get(key)
        if run is not None and kept:
            run.drop(report.first + len(report.lines) - run.first)
        elif run is not None:
            del self._runs[key]


def _key(claim: Claim) -> RunKey:
    return claim.queue, claim.id, claim.token
