"""The decision of a schedule: which of its due ticks fire, and which are missed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import msgspec

from penstock.model.schedule import ScheduleSpec

__all__ = ["MAX_COUNTED", "MAX_FIRES", "Decision", "decide"]

#: The most late ticks that one decision counts.
MAX_COUNTED = 10_000
#: The most ticks that one decision fires; the others are due at once in the next one.
MAX_FIRES = 500


class Decision(msgspec.Struct, frozen=True):
    """The nominal times (ms) that fire, in order, those that are missed, the new cursor, and the next nominal time.

    `next` is not after the time of the decision if more than `MAX_FIRES` are due, and None after the last one.
    """

    fires: tuple[int, ...]
    missed: tuple[int, ...]
    cursor: int
    next: int | None

    def first(self, count: int) -> Decision:
        """Return the decision about the first of the firing ticks alone: the next one is due at once."""
        if count >= len(self.fires):
            return self
        return Decision(self.fires[:count], self.missed, self.fires[count - 1], self.fires[count])


def decide(spec: ScheduleSpec, cursor: int, now: int) -> Decision:
    """Decide the nominal times after `cursor` up to `now` (ms), each once: it fires or is missed.

    All that are not later than `grace` fire. Of the later ones `catch_up` selects none, the last one if no other
    fires, or the newest `most`. The count stops at `MAX_COUNTED` late ones: what is left between those and the newest
    ones is not in the decision. Raises `ValueError` if this machine cannot compute the nominal times.
    """
    fresh_from = now - spec.grace
    late: list[int] = []
    times = spec.following(cursor)
    nominal = next(times, None)
    while nominal is not None and nominal < fresh_from and nominal <= now:
        late.append(nominal)
        if len(late) == MAX_COUNTED:
            newest = _newest(spec, late[-1], min(fresh_from - 1, now), spec.most)
            late += newest
            times = spec.following(late[-1])
        nominal = next(times, None)
    fresh: list[int] = []
    while nominal is not None and nominal <= now and len(fresh) <= MAX_FIRES:
        fresh.append(nominal)
        nominal = next(times, None)
    kept = _kept(spec, len(late), bool(fresh))
    missed = late[: min(len(late), MAX_COUNTED) - kept]
    fires = late[len(late) - kept :] + fresh
    return Decision(tuple(fires), tuple(missed), max([cursor, *late[-1:], *fresh[-1:]]), nominal).first(MAX_FIRES)


def _kept(spec: ScheduleSpec, late: int, fresh: bool) -> int:
    """Return how many of the late ticks fire, the newest ones."""
    if spec.catch_up == "all":
        return min(late, spec.most)
    return 1 if spec.catch_up == "latest" and late and not fresh else 0


def _newest(spec: ScheduleSpec, after: int, until: int, count: int) -> list[int]:
    """Return the newest nominal times after `after` up to `until`, at most `count`, without a walk through all."""
    span = count * 1000
    while True:
        since = max(after, until - span)
        found = list(_up_to(spec.following(since), until))
        if len(found) >= count or since == after:
            return found[-count:]
        span *= 4


def _up_to(times: Iterator[int], until: int) -> Iterator[int]:
    return takewhile(lambda nominal: nominal <= until, times)
