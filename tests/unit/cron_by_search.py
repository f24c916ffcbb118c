"""The instants of a cron by a search through all minutes or seconds: slow, without `cronsim` and `penstock`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

DAY = timedelta(days=1)
#: The steps of a walk between two looks at the zone: fewer minutes than there ever were between two changes.
BLOCK = 30
#: More than any clock was set back since 1990: that of Vostok by seven hours, in 1994.
LONGEST_FOLD = timedelta(hours=8)
#: Every zone with rules of its own name; the others differ between machines or count leap seconds.
ZONES = sorted(name for name in available_timezones() if name not in ("localtime", "posixrules"))


@dataclass(frozen=True)
class Fields:
    """A cron expression, and the sets of numbers that its fields allow."""

    expression: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    @property
    def elapsed(self) -> bool:
        """Whether it goes by elapsed time: the minute or the hour field starts with a star."""
        minute, hour = self.expression.split()[-5:-3]
        return minute[0] == "*" or hour[0] == "*"

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=1 if len(self.expression.split()) == 6 else 60)

    def matches(self, wall: datetime) -> bool:
        """Return whether a time of the wall clock matches; days as in Debian's cron: both, or one if both are given."""
        if wall.second not in self.seconds or wall.minute not in self.minutes or wall.hour not in self.hours:
            return False
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        _, _, day_field, _, weekday_field = self.expression.split()[-5:]
        both = day_field[0] == "*" or weekday_field[0] == "*"
        return wall.month in self.months and (day and weekday if both else day or weekday)


def instants(fields: Fields, tz: str, after: datetime, until: datetime) -> list[datetime]:
    """Return the instants of a cron in (after, until], by the rules alone."""
    clock, step = walk(tz, after - LONGEST_FOLD, until, fields.step), fields.step
    if fields.elapsed:
        return [at for at, wall in clock if after < at <= until and fields.matches(wall)]
    first: dict[datetime, datetime] = {}
    for at, wall in clock:
        first.setdefault(wall, at)
    for (_, before), (at, wall) in pairwise(clock):
        while (before := before + step) < wall:  # a gap: these times are shown by no clock
            first.setdefault(before, at)
    return sorted({at for wall, at in first.items() if after < at <= until and fields.matches(wall)})


def walk(tz: str, since: datetime, until: datetime, step: timedelta) -> list[tuple[datetime, datetime]]:
    """Return all instants of a range on whole steps, each with what the clock of the zone shows."""
    zone = ZoneInfo(tz)
    at = since.replace(second=0) if step.seconds == 60 else since
    clock: list[tuple[datetime, datetime]] = []
    while at <= until:
        shown = [(at + step * index).astimezone(zone).replace(tzinfo=None, fold=0) for index in (0, BLOCK)]
        straight = shown[1] - shown[0] == step * BLOCK  # the offset does not change within the block
        for index in range(BLOCK):
            instant = at + step * index
            wall = shown[0] + step * index if straight else instant.astimezone(zone).replace(tzinfo=None, fold=0)
            clock.append((instant, wall))
        at += step * BLOCK
    return clock


@cache
def turns(tz: str, year: int) -> list[datetime]:
    """Return the instants of a year at which the zone's offset changes, found by days and then by halves."""
    zone, found = ZoneInfo(tz), []
    at = datetime(year, 1, 1, tzinfo=UTC)
    offset = at.astimezone(zone).utcoffset()
    while at.year == year:
        a, b = at, at + DAY
        following = b.astimezone(zone).utcoffset()
        if following != offset:
            while b - a > timedelta(seconds=1):
                middle = a + timedelta(seconds=(b - a) // timedelta(seconds=2))
                a, b = (middle, b) if middle.astimezone(zone).utcoffset() == offset else (a, middle)
            found.append(b)
        at, offset = at + DAY, following
    return found


def random_fields(draw: random.Random, seconds: bool, around: datetime) -> Fields:
    """Return a random expression that matches often in the hours around a time of the clock."""
    parts: list[tuple[str, frozenset[int]]] = []
    if seconds:
        parts.append(_field(draw, 0, 59, star=0.2, near=range(60)))
    parts.append(_field(draw, 0, 59, star=0.2, near=(0, 1, 15, 29, 30, 31, 45, 59)))
    parts.append(_field(draw, 0, 23, star=0.25, near=[(around.hour + hours) % 24 for hours in (-1, -1, 0, 0, 1)]))
    days, weekdays = draw.choice([(1, 1), (1, 1), (1, 1), (0, 1), (1, 0), (0, 0)])
    parts.append(_field(draw, 1, 31, star=days, near=[around.day]))
    parts.append(("*", frozenset(range(1, 13))))
    parts.append(_field(draw, 0, 6, star=weekdays, near=[around.isoweekday() % 7]))
    allowed = [values for _, values in parts]
    if not seconds:
        allowed.insert(0, frozenset({0}))
    return Fields(" ".join(text for text, _ in parts), *allowed)


def _field(draw: random.Random, least: int, most: int, star: float, near: Sequence[int]) -> tuple[str, frozenset[int]]:
    """Return a field in text and the numbers that it allows: a star, a range, or a list with numbers of `near`."""
    every = range(least, most + 1)
    if draw.random() < star:
        step = draw.choice([1, 1, 2, 5, 15, 30])
        return ("*", frozenset(every)) if step == 1 or step > len(every) else (f"*/{step}", frozenset(every[::step]))
    if draw.random() < 0.3:
        low, high = sorted(draw.choices(every, k=2))
        step = draw.randint(1, 7)
        values = frozenset(range(low, high + 1, step))
        return (f"{low}-{high}/{step}", values) if high > low else (str(low), frozenset({low}))
    chosen = sorted(set(draw.choices(near, k=draw.randint(1, 3)) + draw.choices(every, k=draw.randint(0, 3))))
    return ",".join(map(str, chosen)), frozenset(chosen)


def random_case(draw: random.Random, tz: str) -> tuple[Fields, datetime, datetime]:
    """Return an expression and a range of time; most ranges begin near a change of the offset, or inside of it."""
    years = draw.sample(range(1990, 2041), 8)
    found = next((each for each in (turns(tz, year) for year in years) if each), [])
    if found and draw.random() < 0.9:
        turn = draw.choice(found)
        after = turn + timedelta(seconds=draw.randint(-9_000, 5_400))
    else:
        turn = after = datetime(years[0], 1, 1, tzinfo=UTC) + timedelta(seconds=draw.randrange(365 * 86_400))
    seconds = draw.random() < 0.1
    until = after + (timedelta(minutes=draw.randint(60, 240)) if seconds else timedelta(hours=draw.randint(4, 60)))
    return random_fields(draw, seconds, turn.astimezone(ZoneInfo(tz))), after, until
