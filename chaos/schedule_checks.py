"""The checks of schedules: each tick has one job at most, is counted once, and does not fire before its time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from chaos.history import History
from chaos.settings_history import FiredTicks, ScheduleChange, ScheduleKey
from chaos.violation import Violation

__all__ = ["SCHEDULE_CHECKS", "accounted", "nominal_count"]

#: Largest difference (ms) between the clocks of one machine as two programs read them.
CLOCK_TOLERANCE = 20
#: The longest time (µs) from the decision about ticks to their firing.
DECIDED = 10_000_000


def period_of(when: str) -> int | None:
    """Return the milliseconds between two nominal times, None if they are not at equal distances from 1970 on."""
    word, _, rest = when.partition(" ")
    if word == "every":
        return int(rest) * 1000
    if rest == "* * * * *" and word.startswith("*/") and 60 % int(word[2:]) == 0:
        return int(word[2:]) * 1000
    return None


def nominal_count(when: str, after: int, until: int) -> int | None:
    """Return the number of nominal times after a time (ms) up to another, None if they cannot be computed here."""
    period = period_of(when)
    return None if period is None else max(until // period - after // period, 0)


def _steps(history: History) -> Iterator[FiredTicks]:
    """Yield the firings that certainly took effect, those of changes too."""
    for firing in history.settings.firings:
        if firing.sure:
            yield firing
    for change in (each for changes in history.settings.schedule_changes.values() for each in changes):
        if change.sure and change.firing is not None and change.expected:
            yield change.firing


def duplicated_tick(history: History) -> Iterator[Violation]:
    """Yield ticks for which two jobs were put, and versions of a schedule from which two steps were carried out."""
    settings = history.settings
    jobs: defaultdict[tuple[ScheduleKey, str], int] = defaultdict(int)
    steps: defaultdict[tuple[ScheduleKey, int], int] = defaultdict(int)
    for firing in settings.firings:
        if firing.sure:
            steps[firing.key, firing.expected] += 1
            for id in firing.ids:
                jobs[firing.key, id] += 1
    for change in (each for changes in settings.schedule_changes.values() for each in changes):
        if change.sure and change.expected:
            steps[change.key, change.expected] += 1
    for (key, id), count in jobs.items():
        if count > 1:
            yield Violation("duplicated_tick", key, f"{count} jobs were put for {id}", [(key[0], id)])
    for (key, version), count in steps.items():
        if count > 1:
            yield Violation("duplicated_tick", key, f"{count} steps were carried out from version {version}")


def uncounted_tick(history: History) -> Iterator[Violation]:
    """Yield firings that leave out a nominal time or have one twice, and schedules whose counters do not add up."""
    cursors: dict[tuple[ScheduleKey, int], int] = {}
    for firing in history.settings.firings:
        if firing.sure and firing.version is not None and not firing.manual:
            cursors[firing.key, firing.version] = firing.cursor
    for changes in history.settings.schedule_changes.values():
        cursors |= {(each.key, each.version): each.cursor for each in changes if each.sure and each.version is not None}
    for firing in _steps(history):
        if firing.manual or firing.start is None:
            continue
        before = cursors.get((firing.key, firing.expected), firing.start)
        text = _miscounted(firing) or (
            f"it was fired from {firing.start}, and its cursor was at {before}" if before != firing.start else None
        )
        if text is not None:
            yield Violation("uncounted_tick", firing.key, text)
    yield from _wrong_counters(history)


def _miscounted(firing: FiredTicks) -> str | None:
    """Return what is wrong with the ticks of a firing: each nominal time from cursor to cursor is in it once."""
    assert firing.start is not None
    times = [tick[0] for tick in firing.ticks]
    wanted = None if firing.when is None else nominal_count(firing.when, firing.start, firing.cursor)
    if times != sorted(set(times)) or (times and (times[0] <= firing.start or times[-1] > firing.cursor)):
        return f"the ticks {times} do not ascend from {firing.start} to {firing.cursor}"
    if wanted is not None and wanted != len(times) + firing.missed:
        return f"{len(times)} ticks and {firing.missed} missed of {wanted} from {firing.start} to {firing.cursor}"
    counted = firing.fired + firing.skipped + firing.dropped
    if firing.version is not None and counted != len(times):
        return f"{counted} ticks were counted of {len(times)} from {firing.start} to {firing.cursor}"
    return None


def accounted(history: History) -> Iterator[tuple[ScheduleKey, int, int]]:
    """Yield each schedule at the end with its ticks as counted, and as the changes of its cursor demand.

    Those with a change of which it is not known whether it took effect are left out.
    """
    for key, final in history.settings.final_schedules.items():
        wanted = _wanted(history.settings.schedule_changes.get(key, ()), final.cursor)
        if wanted is not None:
            yield key, final.fired + final.skipped + final.missed + final.dropped, wanted


def _wanted(changes: Sequence[ScheduleChange], cursor: int) -> int | None:
    """Return the number of nominal times that a schedule must have counted since it was created last."""
    if any(not change.sure and not change.refused for change in changes):
        return None
    effective = sorted((each for each in changes if each.sure), key=lambda each: each.by)
    created = [place for place, each in enumerate(effective) if each.expected == 0 and not each.deleted]
    if not created:
        return None
    first, *others = effective[created[-1] :]
    total, since, when = 0, first.cursor, first.when
    for change in others:
        base = change.start if change.firing is None else change.firing.cursor
        count = None if base is None else nominal_count(when, since, base)
        if count is None or change.deleted:
            return None
        total, since, when = total + count, change.cursor, change.when
    last = nominal_count(when, since, cursor)
    return None if last is None else total + last


def _wrong_counters(history: History) -> Iterator[Violation]:
    for key, counted, wanted in accounted(history):
        if counted != wanted:
            text = f"{counted} ticks are counted as fired, skipped, missed or dropped, {wanted} were due"
            yield Violation("uncounted_tick", key, text)
    by_hand = {firing.key for firing in history.settings.firings if firing.manual}
    stored: defaultdict[ScheduleKey, list[ScheduleKey]] = defaultdict(list)
    for queue, id in (job.key for job in history.jobs.values() if job.finals):
        if not id.endswith("!"):
            stored[queue, id.rpartition("@")[0]].append((queue, id))
    for key, final in history.settings.final_schedules.items():
        changes = history.settings.schedule_changes.get(key, ())
        again = sum(each.expected == 0 and not each.refused for each in changes) != 1
        if key not in by_hand and not again and not history.loss_windows and len(stored[key]) != final.fired:
            text = f"{final.fired} ticks are counted as fired, and there are {len(stored[key])} jobs"
            yield Violation("uncounted_tick", key, text, stored[key])


def wrong_tick(history: History) -> Iterator[Violation]:
    """Yield ticks that fired before their nominal time, or while their schedule was paused or retired for certain."""
    for firing in history.settings.firings:
        if not firing.sure or firing.manual or not firing.ticks:
            continue
        # The ticks were decided before the firing was sent, and the clock may have been set back meanwhile.
        early = firing.ticks[-1][0] - history.latest_time(firing.asked - DECIDED, firing.by)
        if early > CLOCK_TOLERANCE:
            yield Violation("wrong_tick", firing.key, f"{firing.ticks[-1][1]} fired {early / 1000:.3f} s early")
        stopped = _stopped(history.settings.schedule_changes.get(firing.key, ()), firing)
        if stopped is not None:
            text = f"{firing.ticks[-1][1]} fired {(firing.asked - stopped.by) / 1e6:.3f} s after the schedule stopped"
            yield Violation("wrong_tick", firing.key, text)


def _stopped(changes: Sequence[ScheduleChange], firing: FiredTicks) -> ScheduleChange | None:
    """Return the change that stopped a schedule before a firing, None if it may have been on at that time."""
    before = [each for each in changes if each.sure and each.by < firing.asked]
    last = max(before, key=lambda each: each.asked, default=None)
    if last is None or last.fires:
        return None
    resumed = any(
        each.fires and not each.refused and each.by > last.asked and each.asked < firing.by for each in changes
    )
    return None if resumed else last


SCHEDULE_CHECKS = (duplicated_tick, uncounted_tick, wrong_tick)
