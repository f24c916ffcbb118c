"""Schedules without `await`: every method is that of `penstock.Schedules`, finished when it returns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias, Unpack

from msgspec import UNSET

from penstock.client.answers import Enqueued, Page
from penstock.client.schedule_info import ScheduleInfo
from penstock.client.schedule_options import ScheduleChanges, ScheduleOptions
from penstock.client.schedules import Schedules as AsyncSchedules
from penstock.model.clock import Moment
from penstock.model.schedule import Overlap, When
from penstock.sync.backends import SyncBackends

__all__ = ["Schedules"]

#: The type of a list, as `Schedules.list` hides the name.
Moments: TypeAlias = list[datetime]


class Schedules:
    """The schedules of one queue, as `queue.schedules`: those that code declares, and those that are made here."""

    def __init__(self, backends: SyncBackends, queue: str) -> None:
        self._backends = backends
        self._run = backends.run
        self._queue = queue

    def __repr__(self) -> str:
        return f"<Schedules of {self._queue!r}>"

    @property
    def _schedules(self) -> AsyncSchedules:
        return self._backends.queue(self._queue).schedules

    # reads ------------------------------------------------------------------------------------------

    def get(self, name: str) -> ScheduleInfo | None:
        """Return a schedule, or None when there is none with this name."""
        return self._run(self._schedules.get(name))

    def list(self, after: str | None = None, limit: int = 100) -> Page[ScheduleInfo]:
        """Return a page of the queue's schedules, by name; `after` is the cursor of the page before."""
        return self._run(self._schedules.list(after, limit))

    def next(self, name: str, count: int = 10) -> Moments:
        """Return the next nominal times of a schedule, at most `count`; a paused one has them too."""
        return self._run(self._schedules.next(name, count))

    # changes ----------------------------------------------------------------------------------------

    def put(self, name: str, when: When, **options: Unpack[ScheduleOptions]) -> ScheduleInfo:
        """Create a schedule or replace the one of this name, with the options of `Schedule`.

        Of one that code declares every field is changed, until `reset`. A pause stays.
        """
        return self._run(self._schedules.put(name, when, **options))

    def edit(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleInfo:
        """Change some options of a schedule; ticks that are due before belong to the old ones.

        They win over those that code declares, until `reset`. Bounds of its jobs (`timeout`, `max_retries`, …) are
        changed together with those that are in force.
        """
        return self._run(self._schedules.edit(name, **changes))

    def pause(self, name: str, note: str = "") -> bool:
        """Stop the ticks of a schedule until `resume`, not the jobs that it has put; False if it was paused already."""
        return self._run(self._schedules.pause(name, note))

    def resume(self, name: str, catch_up: bool = False) -> bool:
        """Let a paused schedule tick again from now on; False if it was not paused.

        Ticks that fell into the pause are not made up for, unless with `catch_up`: then they are late, and its options
        `grace` and `catch_up` decide.
        """
        return self._run(self._schedules.resume(name, catch_up))

    def reset(self, name: str) -> ScheduleInfo:
        """Forget the changes of run time, so that the schedule is as code declares it; a pause stays."""
        return self._run(self._schedules.reset(name))

    def remove(self, name: str) -> bool:
        """Delete a schedule; False when there is none with this name. The jobs that it has put stay.

        One that code declares is refused with a `ValueError`.
        """
        return self._run(self._schedules.remove(name))

    # ticks by hand ----------------------------------------------------------------------------------

    def trigger(self, name: str, *, payload: Any = UNSET, overlap: Overlap | None = None) -> Enqueued:
        """Put a job of a schedule now, also while it is paused; its counts and its next tick stay.

        `payload` and `overlap` replace those of the schedule. If the overlap "skip" lets no job start, the answer is
        falsy and has the id of the unfinished one.
        """
        return self._run(self._schedules.trigger(name, payload=payload, overlap=overlap))

    def backfill(self, name: str, start: Moment, end: Moment) -> int:
        """Put the jobs of the ticks after `start` up to `end`, in order; returns how many were put.

        Ticks for which there is a job already are left out. At most 10,000, and none that is still to come.
        """
        return self._run(self._schedules.backfill(name, start, end))
