"""The decision of a schedule: which of its due ticks become jobs, and which are missed, skipped or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from penstock.model.schedule import Overlap, ScheduleSpec

__all__ = ["MAX_COUNTED", "MAX_FIRES", "MAX_WAITING", "Decision", "Judgement", "decide", "judge"]

#: The most late ticks that one decision counts.
MAX_COUNTED = 10_000
#: The most ticks that one decision fires; the others are due at once in the next one.
MAX_FIRES = 500
#: With `overlap="queue"`: ticks beyond this many waiting jobs are dropped.
MAX_WAITING = 1_000


class Decision(msgspec.Struct, frozen=True):
    """The nominal times (ms) that fire, in order, those that are missed, the new cursor, and the next nominal time.

    `next` is not after the time of the decision if more than `MAX_FIRES` are due, and None after the last one.
    """

    fires: tuple[int, ...]
    missed: tuple[int, ...]
    cursor: int
    next: int | None


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
    if len(fires) > MAX_FIRES:
        return Decision(tuple(fires[:MAX_FIRES]), tuple(missed), fires[MAX_FIRES - 1], fires[MAX_FIRES])
    return Decision(tuple(fires), tuple(missed), max([cursor, *late[-1:], *fresh[-1:]]), nominal)


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


class Judgement(msgspec.Struct, frozen=True):
    """The firing ticks that become jobs, those that are skipped, those that are dropped, each in order.

    `cancels` is whether the last job before them is cancelled in the same step.
    """

    jobs: tuple[int, ...]
    skipped: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    cancels: bool = False


def judge(fires: Sequence[int], overlap: Overlap, *, unfinished: bool, waiting: int = 0) -> Judgement:
    """Judge firing ticks, one after the other, by the overlap policy.

    `unfinished` is whether the schedule's last job is unfinished; `waiting`, the number of its waiting jobs, counts
    with "queue" alone. The job of one tick is unfinished when the next of the same call is judged: with "skip" the
    first may become a job and the others are skipped; with "replace" and "kill" each would cancel the one before at
    once, so the newest becomes a job and the others are skipped.
    """
    ticks = tuple(fires)
    if overlap == "skip":
        room = 0 if unfinished else 1
        return Judgement(ticks[:room], skipped=ticks[room:])
    if overlap == "queue":
        room = max(MAX_WAITING - waiting, 0)
        return Judgement(ticks[:room], dropped=ticks[room:])
    if overlap == "allow":
        return Judgement(ticks)
    return Judgement(ticks[-1:], skipped=ticks[:-1], cancels=unfinished and bool(ticks))
