"""The limits and schedules of a history: their changes, the firings of ticks, and which limits held when."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from chaos.log import Record

__all__ = [
    "FinalSchedule",
    "FiredTicks",
    "LimitChange",
    "LimitTimeline",
    "Rule",
    "ScheduleChange",
    "ScheduleKey",
    "ScopeKey",
    "SettingsHistory",
]

#: Kind (family, queue, groups, group), name, and group or None.
ScopeKey = tuple[str, str, str | None]
#: Queue and name.
ScheduleKey = tuple[str, str]


@dataclass(slots=True, frozen=True)
class Rule:
    """Rule of a limit: 0 is no limit of runs, and a step (µs) of 0 no rate."""

    concurrency: int
    step: int
    burst: int
    by_cost: bool

    def price(self, cost: int) -> int:
        return cost if self.by_cost else 1


@dataclass(slots=True)
class Change:
    """Request that took effect between `asked` and `by`; `sure` if it was acknowledged, else it may have none."""

    asked: int
    by: int
    sure: bool = False
    #: Whether the storage answered that it had no effect.
    refused: bool = False


@dataclass(slots=True)
class LimitChange(Change):
    """Change of the limit of a scope; without a rule it was removed."""

    scope: ScopeKey = ("queue", "", None)
    rule: Rule | None = None


@dataclass(slots=True)
class FiredTicks(Change):
    """Firing of a schedule, decided from the record of version `expected`, whose cursor was `start`.

    `ticks` are nominal time (ms), id, behaviour, group and cost of each; `ids` are those that became jobs.
    """

    key: ScheduleKey = ("", "")
    expected: int = 0
    start: int | None = None
    when: str | None = None
    ticks: list[list[Any]] = field(default_factory=list[list[Any]])
    missed: int = 0
    cursor: int = 0
    manual: bool = False
    version: int | None = None
    fired: int = 0
    skipped: int = 0
    dropped: int = 0
    known: int = 0
    ids: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class ScheduleChange(Change):
    """Creation, change or deletion of a schedule; `firing` are the ticks that were due before it."""

    key: ScheduleKey = ("", "")
    expected: int = 0
    start: int | None = None
    cursor: int = 0
    when: str = ""
    #: Whether its ticks fire from then on: it is neither paused, retired nor deleted.
    fires: bool = True
    deleted: bool = False
    version: int | None = None
    firing: FiredTicks | None = None


@dataclass(slots=True)
class FinalSchedule:
    """A schedule as the storage had it at the end of the run."""

    key: ScheduleKey
    version: int
    cursor: int
    fired: int
    skipped: int
    missed: int
    dropped: int


class SettingsHistory:
    """Changes of limits and schedules, firings, and the schedules at the end of the run."""

    def __init__(self) -> None:
        self.limit_changes: list[LimitChange] = []
        self.firings: list[FiredTicks] = []
        self.schedule_changes: defaultdict[ScheduleKey, list[ScheduleChange]] = defaultdict(list)
        self.final_schedules: dict[ScheduleKey, FinalSchedule] = {}
        #: The wall clock minus the monotonic one (µs), as the processes have read them.
        self.clock_offset = 0

    def timelines(self) -> dict[ScopeKey, LimitTimeline]:
        """Return the limits of each scope that ever had one."""
        by_scope: defaultdict[ScopeKey, list[LimitChange]] = defaultdict(list)
        for change in self.limit_changes:
            if not change.refused:
                by_scope[change.scope].append(change)
        return {scope: LimitTimeline(changes) for scope, changes in by_scope.items()}

    def wall_ms(self, moment: int) -> float:
        """Return the milliseconds of the wall clock at a moment of the monotonic one (µs)."""
        return (moment + self.clock_offset) / 1000

    def forget_answers(self, windows: Iterable[tuple[int, int]]) -> None:
        """Take changes that were answered in a loss window for such that may have had no effect."""
        changes: list[Change] = [*self.limit_changes, *self.firings]
        changes += [each for one in self.schedule_changes.values() for each in one]
        spans = list(windows)
        for change in changes:
            if any(first <= change.by <= last for first, last in spans):
                change.sure = False


class LimitTimeline:
    """The limits of one scope in the course of a run; before the first change it had none."""

    def __init__(self, changes: Iterable[LimitChange]) -> None:
        self._changes = sorted(changes, key=lambda change: change.asked)
        self._asked = [change.asked for change in self._changes]
        sure = sorted((change.by, change.asked) for change in self._changes if change.sure)
        self._sure_by = [by for by, _ in sure]
        #: For each sure change by the time of its answer: the latest request of those up to it.
        self._latest: list[int] = []
        for _, asked in sure:
            self._latest.append(max(asked, self._latest[-1] if self._latest else asked))

    def possible(self, first: int, last: int) -> set[Rule | None]:
        """Return the rules of which one held at some moment between two; None stands for no limit."""
        place = bisect_left(self._sure_by, first)
        if place == 0:
            found: set[Rule | None] = {None}
            since = None
        else:
            found, since = set(), self._latest[place - 1]
        for change in self._changes[: bisect_right(self._asked, last)]:
            if since is None or change.by >= since:
                found.add(change.rule)
        return found

    def next_change(self, moment: int) -> int | None:
        """Return when the next change after a moment was requested, or None."""
        place = bisect_right(self._asked, moment)
        return self._asked[place] if place < len(self._asked) else None


class SettingsReader:
    """Reader of the records about limits and schedules, which matches requests with their answers."""

    def __init__(self, settings: SettingsHistory, very_late: int, late: int) -> None:
        self.settings = settings
        self._very_late, self._late = very_late, late
        self._limit_requests: dict[tuple[int, int], LimitChange] = {}
        self._schedule_requests: dict[tuple[int, int], ScheduleChange] = {}
        self._fire_requests: dict[tuple[int, int], list[FiredTicks]] = {}

    def _answer(self, change: Change | None, record: Record, effective: bool) -> bool:
        """Note the answer to a request; returns whether it had an effect for certain."""
        if change is None:
            return False
        if "error" in record:
            change.by = record["t"] + self._late
            return False
        change.by, change.sure, change.refused = record["t"], effective, not effective
        return effective

    def set_limit(self, record: Record) -> None:
        kind, name, group = record["scope"]
        rule = None if record["rule"] is None else Rule(*record["rule"])
        at = record["t"]
        change = LimitChange(at, at + self._very_late, scope=(kind, name, group), rule=rule)
        self._limit_requests[record["pid"], record["s"]] = change
        self.settings.limit_changes.append(change)

    def set_limit_answer(self, record: Record) -> None:
        change = self._limit_requests.pop((record["pid"], record["s"]), None)
        self._answer(change, record, record.get("v") is not None)

    def set_schedule(self, record: Record) -> None:
        at, key = record["t"], (record["q"], record["name"])
        firing = None if record["firing"] is None else self._firing(record["firing"], at)
        change = ScheduleChange(
            at, at + self._very_late, key=key, expected=record["v"], start=record["start"], cursor=record["cursor"],
            when=record["when"], fires=record["fires"], firing=firing,
        )  # fmt: skip
        self._schedule_requests[record["pid"], record["s"]] = change
        self.settings.schedule_changes[key].append(change)

    def set_schedule_answer(self, record: Record) -> None:
        change = self._schedule_requests.pop((record["pid"], record["s"]), None)
        if self._answer(change, record, record.get("v") is not None) and change is not None:
            change.version = record["v"]

    def drop_schedule(self, record: Record) -> None:
        at, key = record["t"], (record["q"], record["name"])
        change = ScheduleChange(at, at + self._very_late, key=key, expected=record["v"], fires=False, deleted=True)
        self._schedule_requests[record["pid"], record["s"]] = change
        self.settings.schedule_changes[key].append(change)

    def drop_schedule_answer(self, record: Record) -> None:
        change = self._schedule_requests.pop((record["pid"], record["s"]), None)
        self._answer(change, record, bool(record.get("dropped")))

    def _firing(self, about: dict[str, Any], at: int) -> FiredTicks:
        return FiredTicks(
            at, at + self._very_late, key=(about["q"], about["name"]), expected=about["v"], start=about["start"],
            when=about["when"], ticks=about["ticks"], missed=about["missed"], cursor=about["cursor"],
            manual=about["manual"],
        )  # fmt: skip

    def fire(self, record: Record) -> None:
        firings = [self._firing(each, record["t"]) for each in record["firings"]]
        self._fire_requests[record["pid"], record["s"]] = firings
        self.settings.firings += firings

    def fire_answer(self, record: Record) -> None:
        firings = self._fire_requests.pop((record["pid"], record["s"]), ())
        if not firings or "error" in record:
            for firing in firings:
                self._answer(firing, record, False)
            return
        for firing, (version, stale, *counts, ids) in zip(firings, record["fired"], strict=True):
            self._answer(firing, record, not stale)
            if not stale:
                firing.version, firing.ids = version, ids
                firing.fired, firing.skipped, firing.dropped, firing.known = counts

    def final_schedule(self, record: Record) -> None:
        key = (record["q"], record["name"])
        self.settings.final_schedules[key] = FinalSchedule(key, record["v"], record["cursor"], *record["counts"])

    def file(self, record: Record) -> None:
        if record.get("role") == "runner":
            self.settings.clock_offset = record["wall"] - record["t"]
