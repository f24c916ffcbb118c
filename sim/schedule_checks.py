"""The promises of schedules, checked from the calls and answers of the storage alone.

Each nominal time between two cursors must be decided once: fired, skipped, missed or dropped. The times follow from
the schedule that was stored, and `decide` defines which of them may fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

from msgspec.structs import replace

from penstock.model.schedule import ScheduleSpec
from penstock.model.schedule_decision import MAX_COUNTED, decide
from penstock.model.schedule_settings import ScheduleSettings
from penstock.storage.scheduling import DueSchedules, Fired, Firing, SchedulePage, ScheduleRecord

__all__ = ["ScheduleChecks"]

Key = tuple[str, str]

#: Of a firing with more nominal times than this only their number is compared.
COMPARED = 12


@dataclass
class Known:
    """A schedule as the calls before have left it."""

    record: ScheduleRecord
    #: The ticks that were decided so far.
    decided: int
    #: Fired, skipped, missed and dropped ones; None if an answer did not have them.
    counts: tuple[int, int, int, int] | None

    @property
    def settings(self) -> ScheduleSettings:
        """Its declared and changed parts."""
        return ScheduleSettings.decode(self.record.spec)

    def add(self, firing: Firing, fired: Fired | None) -> None:
        """Count the ticks of a firing."""
        self.decided += len(firing.ticks) + firing.missed
        if fired is None and firing.ticks:
            self.counts = None
        if self.counts is not None:
            more = (fired.fired, fired.skipped, firing.missed, fired.dropped) if fired else (0, 0, firing.missed, 0)
            first, second, third, fourth = (old + new for old, new in zip(self.counts, more, strict=True))
            self.counts = first, second, third, fourth


class ScheduleChecks:
    """The schedules of a run, and the ticks that have become jobs."""

    def __init__(self, fault: Callable[..., None], clock_ms: Callable[[], int]) -> None:
        self._fault = fault
        self._ms = clock_ms
        self._known: dict[Key, Known] = {}
        #: The ticks that have become jobs: queue, name, nominal time, and how often the clock was set back.
        self._fired: set[tuple[str, str, int, int]] = set()
        #: The jobs that ticks have put.
        self.put: set[Key] = set()
        self._latest = self._last = self._set_back = 0

    def observe_clock(self) -> None:
        """Take note of the time: a tick that was due stays so if the clock is set back."""
        now = self._ms()
        self._set_back += now < self._last
        self._last, self._latest = now, max(now, self._latest)

    # changes --------------------------------------------------------------------------------------

    def on_set_schedule(
        self, answer: int | None, record: ScheduleRecord, version: int, firing: Firing | None = None
    ) -> None:
        """Check a change: the ticks that were due before it are decided in the same step."""
        if answer is None:
            return
        key = record.queue, record.name
        known = self._known.get(key)
        if version == 0 or known is None:
            if version:
                self._fault(f"a schedule was changed that does not exist: {key}")
            self._known[key] = Known(replace(record, version=answer), 0, (0, 0, 0, 0))
            return
        settings, cursor = known.settings, known.record.cursor
        if version != known.record.version:
            self._fault(f"a schedule was changed at version {known.record.version}, not {version}: {key}")
        if firing is not None and not firing.manual:
            self._check_firing(known, firing)
            known.add(firing, None)
            cursor = firing.cursor
        if record.cursor < cursor:
            self._fault(f"the cursor of a schedule went back: {key}")
        if settings.fires and (left := list(times(settings.spec, cursor, record.cursor))):
            self._fault(f"{len(left)} ticks were not decided before the schedule was changed: {key}")
        known.record = replace(record, version=answer)

    def on_drop_schedule(self, answer: bool, queue: str, name: str, version: int) -> None:
        """Note the end of a schedule."""
        if answer:
            self._known.pop((queue, name), None)

    def on_delete_queue(self, answer: int, queue: str, settings: bool = False) -> None:
        """Note the end of the jobs of a queue, and of its schedules."""
        self.put = {key for key in self.put if key[0] != queue}
        for key in [key for key in self._known if settings and key[0] == queue]:
            del self._known[key]

    # firings --------------------------------------------------------------------------------------

    def on_fire(self, answers: Sequence[Fired], firings: Sequence[Firing]) -> None:
        """Check ticks that were fired, and those that were not."""
        for firing, fired in zip(firings, answers, strict=True):
            self._check_fired(firing, fired)

    def _check_fired(self, firing: Firing, fired: Fired) -> None:
        key = firing.queue, firing.name
        known = self._known.get(key)
        if fired.stale:
            if known is not None and known.record.version == firing.version and not self._is_forgotten(known.record):
                self._fault(f"a firing of the present version was stale: {key}")
            return
        if known is None or known.record.version != firing.version:
            self._fault(f"a tick fired at another version of its schedule: {key}")
            return
        if len(firing.ticks) != fired.fired + fired.skipped + fired.dropped:
            self._fault(f"of {len(firing.ticks)} ticks some are not in the answer {fired}: {key}")
        if firing.manual:
            known.record = replace(known.record, version=fired.version)
            return
        if not known.settings.fires:
            self._fault(f"a schedule ticked while it was paused or retired: {key}")
        self._check_firing(known, firing)
        self._check_once(firing, fired)
        known.add(firing, fired)
        expires = known.record.expires if firing.expires is None else firing.expires
        known.record = replace(
            known.record, version=fired.version, cursor=firing.cursor, next=firing.next, expires=expires
        )

    def _check_once(self, firing: Firing, fired: Fired) -> None:
        for tick in firing.ticks:
            if tick.job.id in fired.ids:
                mark = firing.queue, firing.name, tick.at, self._set_back
                if mark in self._fired:
                    self._fault("a tick has become a job twice", (firing.queue, tick.job.id))
                self._fired.add(mark)
                self.put.add((firing.queue, tick.job.id))

    def _check_firing(self, known: Known, firing: Firing) -> None:
        """Check that all nominal times up to the new cursor are decided, none early, and as `decide` has it."""
        key, spec, before = (firing.queue, firing.name), known.settings.spec, known.record.cursor
        jobs = [(tick.job.queue, tick.job.id) for tick in firing.ticks]
        nominal = list(islice(times(spec, before, firing.cursor), MAX_COUNTED))
        ticks = [tick.at for tick in firing.ticks]
        if firing.cursor > self._latest or firing.cursor < before:
            self._fault(f"a tick came {firing.cursor - self._latest} ms before its time: {key}", *jobs)
        if [at for at in nominal if at in set(ticks)] != ticks:
            self._fault(f"ticks are not nominal times of their schedule: {key}", *jobs)
        if len(nominal) < MAX_COUNTED and len(nominal) != len(ticks) + firing.missed:
            self._fault(f"{len(nominal)} ticks were due, {len(ticks)} fired and {firing.missed} missed: {key}", *jobs)
        if firing.next != next(spec.following(firing.cursor), None):
            self._fault(f"the next tick of a schedule is {firing.next}: {key}", *jobs)
        for tick in firing.ticks:
            late = (tick.job.run_at or 0) - tick.at
            if not 0 <= late < max(spec.jitter, 1):
                self._fault(f"the job of a tick is due {late} ms after it: {key}", *jobs)
        if len(nominal) <= COMPARED and not self._is_decision(spec, before, firing, nominal):
            self._fault(f"{ticks} fired and {firing.missed} missed of {nominal}, which no time decides: {key}", *jobs)

    def _is_decision(self, spec: ScheduleSpec, before: int, firing: Firing, nominal: Sequence[int]) -> bool:
        """Return whether there is a time at which `decide` gives this firing, or all ticks were given up."""
        if len(nominal) == firing.missed:
            return True
        last = self._latest if firing.next is None else min(firing.next - 1, self._latest)
        moments = {firing.cursor, last, *(at + spec.grace + more for at in nominal for more in (0, 1))}
        ticks = tuple(tick.at for tick in firing.ticks)
        return any(
            (found := decide(spec, before, moment)).fires == ticks and len(found.missed) == firing.missed
            for moment in sorted(moments)
            if firing.cursor <= moment <= last
        )

    # reads ----------------------------------------------------------------------------------------

    def on_due(self, answer: DueSchedules, *args: Any) -> None:
        """Check that due schedules are due, and as they were stored."""
        for record in answer.schedules:
            self.on_get_schedule(record)
            if record.next is None or record.next > self._latest:
                self._fault(f"a schedule is due whose next tick is {record.next}: {record.queue}, {record.name}")

    def on_schedules(self, page: SchedulePage, *args: Any) -> None:
        """Check the schedules of a page."""
        for record in page.schedules:
            self.on_get_schedule(record)

    def on_get_schedule(self, record: ScheduleRecord | None, *args: Any) -> None:
        """Check a schedule that is read: its cursor, its next tick, and its counts."""
        known = None if record is None else self._known.get((record.queue, record.name))
        if record is None:
            return
        key = record.queue, record.name
        if known is None:
            self._fault(f"a schedule is read that does not exist: {key}")
            return
        found = record.version, record.cursor, record.next
        wanted = known.record.version, known.record.cursor, known.record.next
        if found != wanted:
            self._fault(f"version, cursor and next of a schedule are {found}, not {wanted}: {key}")
        counts = record.fired, record.skipped, record.missed, record.dropped
        if sum(counts) != known.decided or known.counts not in (None, counts):
            self._fault(f"a schedule counts {counts}, not {known.counts}, in all {known.decided}: {key}")
        known.counts = counts

    def _is_forgotten(self, record: ScheduleRecord) -> bool:
        return record.expires is not None and record.expires <= self._latest

    def late(self, seconds: float) -> list[tuple[ScheduleRecord, ScheduleSettings]]:
        """Return the schedules whose next tick is overdue for longer than this."""
        found = [known for known in self._known.values() if not self._is_forgotten(known.record)]
        limit = self._ms() - seconds * 1000
        return [(k.record, k.settings) for k in found if k.record.next is not None and k.record.next < limit]


def times(spec: ScheduleSpec, after: int, until: int) -> Iterator[int]:
    """Yield the nominal times after one moment up to and including another."""
    return takewhile(lambda at: at <= until, spec.following(after))
