"""Cron schedules: `Cron`, the instants at which a wall clock in a time zone matches an expression.

The library `cronsim` parses expressions and finds matching times of a clock without a zone. The mapping to instants is
here: it follows Debian's cron where a zone's clock is set forward (a gap) or back (a fold).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock.model.clock import EPOCH, MAX_MS, floor_ms

__all__ = ["Cron", "zone_of"]

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
MILLISECOND = timedelta(milliseconds=1)
LAST = EPOCH + timedelta(milliseconds=MAX_MS)
#: Each expression with a match has one in the 50 years from here: weekdays and leap years repeat within 40.
TRIAL = datetime(1999, 12, 31, 23, 59, 59)

#: The most characters of an expression.
LONGEST = 1_000

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def zone_of(tz: str) -> ZoneInfo:
    """Return a time zone; raises `TypeError` or `ValueError`, which name `tz`."""
    if not isinstance(tz, str):
        raise TypeError(f"tz must be the name of a time zone, not {type(tz).__name__}")
    # These differ between machines, or count leap seconds.
    local = tz in ("localtime", "posixrules") or tz.startswith(("posix/", "right/"))
    try:
        if tz and not local:
            return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        pass
    raise ValueError(f'tz must be the name of a time zone like "Europe/Paris", not {tz!r}')


@dataclass(frozen=True, init=False)
class Cron:
    """The instants at which the clock of a time zone matches a cron expression.

    `expression` has 5 fields, or 6 with seconds first: names, lists, ranges, steps, `L`, `5L`, `1#2`, `LW`; or it is
    `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` or `@annually`.

    If the minute or the hour field starts with `*`, it goes by elapsed time: every instant at which the clock matches,
    none in a gap, both in a repeated hour. Otherwise it goes by the wall clock: all that falls into a gap is one
    instant at its end, and a repeated time counts once, the first time.
    """

    expression: str
    tz: str
    _fields: str = field(repr=False, compare=False)
    _zone: ZoneInfo = field(repr=False, compare=False)
    _elapsed: bool = field(repr=False, compare=False)

    def __init__(self, expression: str, *, tz: str = "UTC") -> None:
        if not isinstance(expression, str):
            raise TypeError(f"expression must be a str, not {type(expression).__name__}")
        expression = " ".join(expression.split())
        fields = MACROS.get(expression.lower(), expression)
        _check(expression, fields)
        minute, hour = fields.split()[-5:-3]
        values = (expression, tz, fields, zone_of(tz), minute.startswith("*") or hour.startswith("*"))
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, tz={self.tz!r})"

    def after(self, moment: datetime) -> datetime | None:
        """Return the first instant strictly after a moment, as aware UTC; None if there is none up to the year 9999."""
        return next(self._instants(_second_of(floor_ms(moment, "moment"))), None)

    def between(self, a: datetime, b: datetime) -> Iterator[datetime]:
        """Yield the instants after `a` up to and including `b`."""
        last = _second_of(floor_ms(b, "b"))
        for at in self._instants(_second_of(floor_ms(a, "a"))):
            if at > last:
                return
            yield at

    def following_ms(self, ms: int) -> Iterator[int]:
        """Yield the instants strictly after `ms`, in milliseconds."""
        for at in self._instants(_second_of(ms)):
            yield (at - EPOCH) // MILLISECOND

    def _instants(self, after: datetime) -> Iterator[datetime]:
        try:
            for at in self._by_elapsed_time(after) if self._elapsed else self._by_wall_clock(after):
                if at > LAST:
                    return
                yield at
        except OverflowError:  # the search went beyond the year 9999
            return

    def _by_wall_clock(self, after: datetime) -> Iterator[datetime]:
        """Yield for each matching time of the wall clock the first instant at which the clock has reached it.

        In a repeated hour these instants are not after `after`: they have been before.
        """
        last, wall = after, self._local(after)
        while True:
            for hit in CronSim(self._fields, wall):
                at = self._first_at(hit)
                if at > last:
                    yield at
                    last = at
                if (end := self._local(at)) != hit:
                    wall = end - SECOND
                    break  # go on behind the gap: a thousand matches inside of it are one instant
            else:
                return

    def _by_elapsed_time(self, after: datetime) -> Iterator[datetime]:
        """Yield every instant at which the clock matches.

        Matches of the clock ascend, their instants do only as long as no fold is between: so the search stops at each
        change of the offset in the day to come, and goes on from there.
        """
        last, wall = after, self._local(after)
        while True:
            for hit in CronSim(self._fields, wall):
                at = _utc(hit) - self._offset(last)
                turn = self._turn(last, last + DAY)
                if turn is None and at - last > DAY:
                    at = self._first_at(hit)
                    turn = at if self._local(at) != hit else None
                if turn is not None and at >= turn:
                    last, wall = turn, self._local(turn) - SECOND
                    break
                yield at
                last = at
            else:
                return

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self._zone).utcoffset() or timedelta()

    def _local(self, at: datetime) -> datetime:
        """Return what the clock shows at an instant."""
        return at.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _first_at(self, hit: datetime) -> datetime:
        """Return the first instant at which the clock shows a time, the end of the gap if it never does."""
        at = hit.replace(tzinfo=self._zone).astimezone(UTC)
        if self._local(at) != hit:
            before = hit.replace(tzinfo=self._zone, fold=1).astimezone(UTC)
            return self._turn(before, at) or at
        return at

    def _turn(self, a: datetime, b: datetime) -> datetime | None:
        """Return the first instant in (a, b] with another offset than at `a`; None if the offsets are equal."""
        offset = self._offset(a)
        if self._offset(b) == offset:
            return None
        while b - a > SECOND:
            middle = a + (b - a) // 2
            middle = middle.replace(microsecond=0)
            if self._offset(middle) == offset:
                a = middle
            else:
                b = middle
        return b


def _check(expression: str, fields: str) -> None:
    """Check an expression; raises `ValueError`, which names `expression`."""
    if len(expression) > LONGEST:
        raise ValueError(f"expression must have at most {LONGEST} characters, not {len(expression)}")
    if expression.startswith("@") and fields == expression:
        raise ValueError(f"expression must have 5 or 6 fields or be one of {', '.join(MACROS)}, not {expression!r}")
    if len(fields.split()) not in (5, 6):
        raise ValueError(f"expression must have 5 fields, or 6 with seconds first: {expression!r} does not")
    try:
        found = next(CronSim(fields, TRIAL), None)
    except CronSimError as error:
        raise ValueError(f"expression {expression!r} is no cron expression: {str(error).lower()}") from None
    if found is None:
        raise ValueError(f"expression {expression!r} matches no time in 50 years")


def _second_of(ms: int) -> datetime:
    """Return the second of a time, which is enough to compare it with instants of a cron."""
    return EPOCH + timedelta(seconds=ms // 1000)


def _utc(wall: datetime) -> datetime:
    return wall.replace(tzinfo=UTC)
